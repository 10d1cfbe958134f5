/* Memory benchmarks: the triad of STREAM, and reading x at the columns of a matrix. */
#include "../kernel.h"
#include "../runtime/clock.h"
#include "sparse.h"

#define GRAIN 65536

typedef struct {
    float *a;
    const float *b, *c;
} triad;

static void task(const void *args, long begin, long end) {
    const triad *t = args;
    for (long i = begin; i < end; i++)
        t->a[i] = t->b[i] + 3 * t->c[i];
}

uint64_t ek_triad_time(float *a, const float *b, const float *c, long n, ek_pool *pool,
                       long count) {
    const triad args = {a, b, c};
    uint64_t start = ek_nanoseconds();
    for (long i = 0; i < count; i++)
        ek_parallel(pool, task, &args, n, GRAIN);
    return ek_nanoseconds() - start;
}

#define CHAINS 8

typedef struct {
    const float *x;
    const int32_t *index;
} reads;

static void read_task(const void *args, long begin, long end) {
    const reads *r = args;
    float sum[CHAINS] = {0};
    long i = begin;
    for (; i + CHAINS <= end; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            sum[c] += r->x[r->index[i + c]];
    for (; i < end; i++)
        sum[0] += r->x[r->index[i]];
    volatile float sink = 0;
    for (int c = 0; c < CHAINS; c++)
        sink = sink + sum[c];
}

uint64_t ek_gather_time(const float *x, const int32_t *index, long n, ek_pool *pool, long count) {
    const reads args = {x, index};
    uint64_t start = ek_nanoseconds();
    for (long i = 0; i < count; i++)
        ek_parallel(pool, read_task, &args, n, GRAIN);
    return ek_nanoseconds() - start;
}
