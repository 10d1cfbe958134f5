/* What the memory gives: the triad of the STREAM benchmark. */
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
