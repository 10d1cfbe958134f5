/* The smallest model: y = 2x + 1 in two operators; the 2 and the 1 come from the weights file.
 *
 * -D options: TINY_ABI=n sets another ABI, TINY_MISSING="x" requires a missing CPU feature,
 * TINY_STATE adds the run count to y, TINY_WRONG makes the output wrong, TINY_FAIL, TINY_CRASH
 * and TINY_HANG make ek_run do so, TINY_UNEVEN makes every second run take 5 ms, TINY_SAY="x" makes
 * it print x, TINY_NAME="x" renames the model, TINY_WEIGHTS="n" sets the size of the weights file.
 * If TINY_PLACED is in the environment, y starts with the thread count and the numbers of cores
 * allowed to the callers of ek_run and of ek_pool_create.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ek.h"

#ifndef TINY_ABI
#define TINY_ABI EK_ABI
#endif
#ifndef TINY_NAME
#define TINY_NAME "tiny"
#endif
#ifndef TINY_WEIGHTS
#define TINY_WEIGHTS "8"
#endif
#ifdef TINY_STATE
#define STATE_BYTES "4"
#else
#define STATE_BYTES "0"
#endif

enum { COUNT = 4, OPERATORS = 2 };

struct ek_pool {
    int threads;
    int cores;
};

int ek_abi(void) {
    return TINY_ABI;
}

const char *ek_missing_feature(void) {
#ifdef TINY_MISSING
    return TINY_MISSING;
#else
    return NULL;
#endif
}

const char *ek_describe(void) {
    return "{\"name\":\"" TINY_NAME "\","
           "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4],"
           "\"scale\":null,\"zero_point\":null}],"
           "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[4],"
           "\"scale\":null,\"zero_point\":null}],"
           "\"arena_bytes\":64,\"state_bytes\":" STATE_BYTES ",\"weights_bytes\":" TINY_WEIGHTS
           ",\"simd\":\"none\","
           "\"operators\":[{\"name\":\"twice\",\"op\":\"Mul\",\"kernel\":\"f32-mul\"},"
           "{\"name\":\"plus\",\"op\":\"Add\",\"kernel\":\"f32-add\"}]}";
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int cores(void) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) ? 0 : CPU_COUNT(&allowed);
}

void ek_reset(const ek_model *m) {
#ifdef TINY_STATE
    *(float *)m->state = 0.0f;
#else
    (void)m;
#endif
}

int ek_run(const ek_model *m, const void *const *in, void *const *out) {
    const float *weights = m->weights, *x = in[0];
    float *scaled = m->arena, *y = out[0];
    if ((uintptr_t)m->weights % 64 || (uintptr_t)m->arena % 64)
        return 1;
#ifdef TINY_SAY
    fputs(TINY_SAY "\n", stderr);
#endif
#ifdef TINY_FAIL
    return 3;
#endif
#ifdef TINY_CRASH
    abort();
#endif
#ifdef TINY_HANG
    for (;;)
        nanosleep(&(struct timespec){1, 0}, NULL);
#endif
#ifdef TINY_UNEVEN
    static int runs;
    if (runs++ % 2)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
#endif
    uint64_t start = now();
    if (m->stamps)
        m->stamps[0] = 0;
    for (int i = 0; i < COUNT; ++i)
        scaled[i] = weights[0] * x[i];
    if (m->stamps)
        m->stamps[1] = now() - start;
    for (int i = 0; i < COUNT; ++i)
        y[i] = scaled[i] + weights[1];
#ifdef TINY_STATE
    float *runs = m->state;
    *runs += 1.0f;
    for (int i = 0; i < COUNT; ++i)
        y[i] += *runs;
#endif
#ifdef TINY_WRONG
    y[COUNT - 1] += 0.5f;
#endif
    if (getenv("TINY_PLACED")) {
        y[0] = m->pool ? (float)m->pool->threads : 1;
        y[1] = (float)cores();
        y[2] = m->pool ? (float)m->pool->cores : 0;
    }
    if (m->stamps)
        m->stamps[2] = now() - start;
    return 0;
}

int ek_bench(const ek_model *m, const void *const *in, void *const *out, long count,
             uint64_t *times) {
    ek_model each = *m;
    for (long i = 0; i < count; ++i) {
        if (m->stamps)
            each.stamps = m->stamps + i * (OPERATORS + 1);
        uint64_t start = now();
        int code = ek_run(&each, in, out);
        if (code)
            return code;
        times[i] = now() - start;
    }
    return 0;
}

ek_pool *ek_pool_create(int threads) {
    if (threads > 64)
        return NULL;
    ek_pool *pool = malloc(sizeof *pool);
    if (pool)
        *pool = (ek_pool){threads, cores()};
    return pool;
}

void ek_pool_destroy(ek_pool *pool) {
    free(pool);
}

int ek_pool_layout(void) {
    return 1000; /* no other library's */
}
