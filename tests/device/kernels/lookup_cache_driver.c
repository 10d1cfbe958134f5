/* Threads look up and add entries concurrently: a hit must return the intact entry of its query,
 * and a single thread must always find the entry it added last.
 * Arguments: threads, queries per thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "gemm/lookup_cache.h"

#define QUERIES 3000 /* exceeds the cache's capacity */

static ek_gemm_lookup_cache cache;
static long queries;

static uint64_t hash_of(int i) {
    return (uint64_t)i * 0x9e3779b97f4a7c15u;
}

static ek_gemm_cache_entry entry_of(int i) {
    ek_gemm_cache_entry a = {.query = {i, 2 * i, 3 * i, i % 12, i % 5}};
    a.how = (ek_gemm_method){i, -i, i + 1, i + 2, i + 3, i % 2, i % 3, i % 7};
    return a;
}

/* True on a hit; exits if the entry belongs to another query. */
static int find(int i) {
    const ek_gemm_cache_entry wanted = entry_of(i);
    ek_gemm_method how;
    int rule;
    if (!ek_gemm_cache_find(&cache, hash_of(i), &wanted.query, &how, &rule))
        return 0;
    const ek_gemm_method *w = &wanted.how;
    if (rule == i % 6 && how.mc == w->mc && how.kc == w->kc && how.nc == w->nc && how.mr == w->mr &&
        how.nr == w->nr && how.pack_a == w->pack_a && how.pack_b == w->pack_b &&
        how.split == w->split)
        return 1;
    fprintf(stderr, "query %d has the entry of another\n", i);
    exit(1);
}

static void add(int i) {
    const ek_gemm_cache_entry entry = entry_of(i);
    ek_gemm_cache_add(&cache, hash_of(i), &entry, i % 6);
}

static void *look_up(void *seed) {
    unsigned random = *(unsigned *)seed;
    for (long n = 0; n < queries; n++) {
        const int i = rand_r(&random) % QUERIES;
        if (!find(i))
            add(i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    const int count = atoi(argv[1]);
    queries = atol(argv[2]);
    for (int i = 0; i < QUERIES; i++) {
        add(i);
        if (!find(i)) {
            fprintf(stderr, "query %d was just added and is not found\n", i);
            return 1;
        }
    }
    pthread_t threads[16];
    unsigned seeds[16];
    for (int t = 0; t < count; t++) {
        seeds[t] = (unsigned)t;
        pthread_create(&threads[t], NULL, look_up, &seeds[t]);
    }
    for (int t = 0; t < count; t++)
        pthread_join(threads[t], NULL);
    return 0;
}
