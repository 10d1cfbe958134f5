/* The C ABI of a compiled model: plain C, callable without Python.
 *
 * A caller maps the weights file read-only, allocates an arena (64-byte aligned, the size is in
 * ek_describe) and, for stateful models, a state block, and calls ek_run. ek_run is re-entrant:
 * two ek_model with different arenas, states and pools may run at once. */
#ifndef EK_H
#define EK_H
#include <stdint.h>

#define EK_ABI 1

typedef struct ek_pool ek_pool;

typedef struct {
    const void *weights; /* the weights file, 64-byte aligned */
    void *arena;         /* arena_bytes, 64-byte aligned */
    void *state;         /* state_bytes, 64-byte aligned; ignored if the model has no state */
    ek_pool *pool;       /* NULL: run on the calling thread alone */
    uint64_t *stamps;    /* operators + 1 entries, nanoseconds since the start; NULL: no timing */
} ek_model;

/* Bumped when anything in this file changes. */
int ek_abi(void);

/* The first CPU feature that this library needs and this CPU lacks, or NULL. Built for the plain
 * architecture, so it is safe to call anywhere; call it before anything below. */
const char *ek_missing_feature(void);

/* JSON: inputs, outputs, arena_bytes, state_bytes, weights_bytes, operators, simd. */
const char *ek_describe(void);

/* Writes the initial values into m->state. */
void ek_reset(const ek_model *m);

/* One inference; in and out as listed by ek_describe, contiguous, naturally aligned. 0: done. */
int ek_run(const ek_model *m, const void *const *in, void *const *out);

/* `count` inferences; times[i] = nanoseconds of the i-th. If m->stamps is set it holds
 * count × (operators + 1) entries, one row per inference. */
int ek_bench(const ek_model *m, const void *const *in, void *const *out, long count,
             uint64_t *times);

/* A pool of `threads` (the caller counts as one); NULL if they cannot be started. */
ek_pool *ek_pool_create(int threads);
void ek_pool_destroy(ek_pool *pool);

#endif
