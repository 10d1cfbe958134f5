/* Answers kept by their questions, for any number of threads at once. A place is read without a
 * lock: its version is odd while it is written, and another one afterwards. The newest answer is
 * always kept, in place of an older one where all places that may hold it are taken. */
#ifndef EK_GEMM_KEPT_H
#define EK_GEMM_KEPT_H
#include <stdatomic.h>
#include <string.h>
#include "gemm.h"

enum { EK_GEMM_KEPT = 1024, EK_GEMM_PLACES = 8 }; /* answers in all; places for one */

typedef struct {
    long m, n, k;
    int32_t dtype, threads;
} ek_gemm_question;

typedef struct {
    ek_gemm_question asked;
    ek_gemm_method how;
} ek_gemm_answer;

enum {
    EK_GEMM_WORDS = sizeof(ek_gemm_answer) / sizeof(uintptr_t),
    EK_GEMM_ASKED = sizeof(ek_gemm_question) / sizeof(uintptr_t),
};
_Static_assert(sizeof(ek_gemm_answer) == EK_GEMM_WORDS * sizeof(uintptr_t), "whole words");

/* All zero: free. */
typedef struct {
    atomic_uint version;
    atomic_int rule;
    _Atomic uintptr_t word[EK_GEMM_WORDS];
} ek_gemm_place_kept;

typedef struct {
    ek_gemm_place_kept place[EK_GEMM_KEPT] __attribute__((aligned(64)));
} ek_gemm_kept;

static inline ek_gemm_place_kept *ek_gemm_kept_place(ek_gemm_kept *kept, uint64_t hash, int i) {
    return &kept->place[(hash + (uint64_t)i) % EK_GEMM_KEPT];
}

/* 0: it is not kept. `hash` is one of the question. */
static inline int ek_gemm_kept_find(ek_gemm_kept *kept, uint64_t hash, const ek_gemm_question *q,
                                    ek_gemm_method *how, int *rule) {
    uintptr_t asked[EK_GEMM_ASKED];
    memcpy(asked, q, sizeof asked);
    for (int i = 0; i < EK_GEMM_PLACES; i++) {
        ek_gemm_place_kept *const place = ek_gemm_kept_place(kept, hash, i);
        const unsigned version = atomic_load_explicit(&place->version, memory_order_acquire);
        if (!version)
            return 0;
        uintptr_t words[EK_GEMM_WORDS], different = 0;
        for (int w = 0; w < EK_GEMM_ASKED; w++)
            different |= asked[w] ^ atomic_load_explicit(&place->word[w], memory_order_relaxed);
        if (different)
            continue;
        for (int w = EK_GEMM_ASKED; w < EK_GEMM_WORDS; w++)
            words[w] = atomic_load_explicit(&place->word[w], memory_order_relaxed);
        memcpy(how, words + EK_GEMM_ASKED, sizeof *how);
        *rule = atomic_load_explicit(&place->rule, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        return !(version & 1) &&
               atomic_load_explicit(&place->version, memory_order_relaxed) == version;
    }
    return 0;
}

/* Does nothing where another thread is just writing. */
static inline void ek_gemm_kept_add(ek_gemm_kept *kept, uint64_t hash, const ek_gemm_answer *answer,
                                    int rule) {
    const int lost = (int)(hash >> 32 & (EK_GEMM_PLACES - 1));
    ek_gemm_place_kept *place = ek_gemm_kept_place(kept, hash, lost);
    for (int i = 0; i < EK_GEMM_PLACES; i++) {
        ek_gemm_place_kept *const other = ek_gemm_kept_place(kept, hash, i);
        if (!atomic_load_explicit(&other->version, memory_order_relaxed)) {
            place = other;
            break;
        }
    }
    unsigned version = atomic_load_explicit(&place->version, memory_order_relaxed);
    if (version & 1 ||
        !atomic_compare_exchange_strong_explicit(&place->version, &version, version + 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    atomic_thread_fence(memory_order_release);
    uintptr_t words[EK_GEMM_WORDS];
    memcpy(words, answer, sizeof words);
    for (int w = 0; w < EK_GEMM_WORDS; w++)
        atomic_store_explicit(&place->word[w], words[w], memory_order_relaxed);
    atomic_store_explicit(&place->rule, rule, memory_order_relaxed);
    atomic_store_explicit(&place->version, version + 2, memory_order_release);
}
#endif
