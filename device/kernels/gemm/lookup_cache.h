/* A cache of looked-up methods by shape, safe for concurrent threads. Slots are read without a
 * lock: a slot's version is odd while it is written and changes with each write (a seqlock). New
 * entries always enter, evicting an older one if all candidate slots are taken. */
#ifndef EK_GEMM_LOOKUP_CACHE_H
#define EK_GEMM_LOOKUP_CACHE_H
#include <stdatomic.h>
#include <string.h>
#include "gemm.h"

enum { EK_GEMM_CACHE_SLOTS = 1024, EK_GEMM_CACHE_WAYS = 8 }; /* entries; slots per hash value */

typedef struct {
    long m, n, k;
    int32_t dtype, threads;
} ek_gemm_query;

typedef struct {
    ek_gemm_query query;
    ek_gemm_method how;
} ek_gemm_cache_entry;

enum {
    EK_GEMM_WORDS = sizeof(ek_gemm_cache_entry) / sizeof(uintptr_t),
    EK_GEMM_QUERY_WORDS = sizeof(ek_gemm_query) / sizeof(uintptr_t),
};
_Static_assert(sizeof(ek_gemm_cache_entry) == EK_GEMM_WORDS * sizeof(uintptr_t),
               "a multiple of the word size");

/* An all-zero slot is free. */
typedef struct {
    atomic_uint version;
    atomic_int rule;
    _Atomic uintptr_t word[EK_GEMM_WORDS];
} ek_gemm_cache_slot;

typedef struct {
    ek_gemm_cache_slot slot[EK_GEMM_CACHE_SLOTS] __attribute__((aligned(64)));
} ek_gemm_lookup_cache;

static inline ek_gemm_cache_slot *ek_gemm_cache_slot_at(ek_gemm_lookup_cache *cache, uint64_t hash,
                                                        int i) {
    return &cache->slot[(hash + (uint64_t)i) % EK_GEMM_CACHE_SLOTS];
}

/* Returns 0 if absent. `hash` is the query's. */
static inline int ek_gemm_cache_find(ek_gemm_lookup_cache *cache, uint64_t hash,
                                     const ek_gemm_query *q, ek_gemm_method *how, int *rule) {
    uintptr_t query[EK_GEMM_QUERY_WORDS];
    memcpy(query, q, sizeof query);
    for (int i = 0; i < EK_GEMM_CACHE_WAYS; i++) {
        ek_gemm_cache_slot *const slot = ek_gemm_cache_slot_at(cache, hash, i);
        const unsigned version = atomic_load_explicit(&slot->version, memory_order_acquire);
        if (!version)
            return 0;
        uintptr_t words[EK_GEMM_WORDS], different = 0;
        for (int w = 0; w < EK_GEMM_QUERY_WORDS; w++)
            different |= query[w] ^ atomic_load_explicit(&slot->word[w], memory_order_relaxed);
        if (different)
            continue;
        for (int w = EK_GEMM_QUERY_WORDS; w < EK_GEMM_WORDS; w++)
            words[w] = atomic_load_explicit(&slot->word[w], memory_order_relaxed);
        memcpy(how, words + EK_GEMM_QUERY_WORDS, sizeof *how);
        *rule = atomic_load_explicit(&slot->rule, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        return !(version & 1) &&
               atomic_load_explicit(&slot->version, memory_order_relaxed) == version;
    }
    return 0;
}

/* Does nothing if another thread is writing the slot. */
static inline void ek_gemm_cache_add(ek_gemm_lookup_cache *cache, uint64_t hash,
                                     const ek_gemm_cache_entry *entry, int rule) {
    const int lost = (int)(hash >> 32 & (EK_GEMM_CACHE_WAYS - 1));
    ek_gemm_cache_slot *slot = ek_gemm_cache_slot_at(cache, hash, lost);
    for (int i = 0; i < EK_GEMM_CACHE_WAYS; i++) {
        ek_gemm_cache_slot *const other = ek_gemm_cache_slot_at(cache, hash, i);
        if (!atomic_load_explicit(&other->version, memory_order_relaxed)) {
            slot = other;
            break;
        }
    }
    unsigned version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    if (version & 1 ||
        !atomic_compare_exchange_strong_explicit(&slot->version, &version, version + 1,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    atomic_thread_fence(memory_order_release);
    uintptr_t words[EK_GEMM_WORDS];
    memcpy(words, entry, sizeof words);
    for (int w = 0; w < EK_GEMM_WORDS; w++)
        atomic_store_explicit(&slot->word[w], words[w], memory_order_relaxed);
    atomic_store_explicit(&slot->rule, rule, memory_order_relaxed);
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}
#endif
