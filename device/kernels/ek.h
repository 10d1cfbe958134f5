/* C ABI of a compiled model: plain C, callable without Python.
 *
 * A caller maps the weights file read-only, allocates an arena (64-byte aligned; ek_describe gives
 * the size) and, for stateful models, a state block, and calls ek_run. ek_run is re-entrant: two
 * ek_models with different arenas and states may run concurrently. */
#ifndef EK_H
#define EK_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EK_ABI 1

typedef struct ek_pool ek_pool;

typedef struct {
    const void *weights; /* the weights file, 64-byte aligned */
    void *arena;         /* arena_bytes, 64-byte aligned */
    void *state;         /* state_bytes, 64-byte aligned; ignored if the model has no state */
    ek_pool *pool;       /* NULL: run on the calling thread only */
    uint64_t *stamps;    /* operators + 1 entries, nanoseconds since the start; NULL: no timing */
} ek_model;

/* Bumped when anything in this file changes. */
int ek_abi(void);

/* Returns the first CPU feature that this library needs and this CPU lacks, or NULL. It is built
 * for the baseline architecture, so it is safe anywhere; call it before the functions below. */
const char *ek_missing_feature(void);

/* JSON: inputs, outputs, arena_bytes, state_bytes, weights_bytes, operators, simd. */
const char *ek_describe(void);

/* Writes the initial values into m->state. */
void ek_reset(const ek_model *m);

/* Runs one inference; in and out as listed by ek_describe, contiguous, naturally aligned. Returns 0
 * on success. */
int ek_run(const ek_model *m, const void *const *in, void *const *out);

/* Runs `count` inferences; times[i] = nanoseconds of the i-th. If m->stamps is set, it holds count
 * × (operators + 1) entries, one row per inference. */
int ek_bench(const ek_model *m, const void *const *in, void *const *out, long count,
             uint64_t *times);

/* Creates a pool of `threads`, including the caller; NULL if they cannot be started. Any number of
 * threads may use it at the same time, and models of other libraries with the same layout. */
ek_pool *ek_pool_create(int threads);
int ek_pool_layout(void); /* missing in libraries of edgekit 0.1, whose pools have one user */
void ek_pool_destroy(ek_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
