/* Mean of f32 (f16 with EK_HALF), summed in f32. Compile-time parameters: NAME, EK_SIMD. */
#include "mean.h"

#define BLOCK EK_REDUCE_BLOCK
#define RUN 256 /* rows summed separately, because adding to a large sum loses low bits */

/* Means of n columns, with row stride `inner`. */
EK_INLINE void columns(const ek_real *x, ek_real *y, long reduced, long inner, const long n) {
    float sum[BLOCK];
    EK_VECTOR_LOOP
    for (long i = 0; i < n; i++)
        sum[i] = 0.0f;
    for (long r = 0; r < reduced; r += RUN) {
        float part[BLOCK];
        for (long i = 0; i < n; i++)
            part[i] = 0.0f;
        for (long k = r; k < ek_min(r + RUN, reduced); k++, x += inner) {
            EK_VECTOR_LOOP
            for (long i = 0; i < n; i++)
                part[i] += x[i];
        }
        EK_VECTOR_LOOP
        for (long i = 0; i < n; i++)
            sum[i] += part[i];
    }
    EK_VECTOR_LOOP
    for (long i = 0; i < n; i++)
        y[i] = (ek_real)(sum[i] / (float)reduced);
}

/* Task: outer index x block of inner. */
void NAME(const void *args, long begin, long end) {
    const ek_mean_args *a = args;
    long blocks = (a->inner + BLOCK - 1) / BLOCK;
    for (long t = begin; t < end; t++) {
        long from = t % blocks * BLOCK, n = ek_min(BLOCK, a->inner - from);
        const ek_real *x = (const ek_real *)a->x + t / blocks * a->reduced * a->inner + from;
        ek_real *y = (ek_real *)a->y + t / blocks * a->inner + from;
        long at = 0;
        if (n == BLOCK)
            columns(x, y, a->reduced, a->inner, BLOCK), at = BLOCK;
        if (n - at >= 32)
            columns(x + at, y + at, a->reduced, a->inner, 32), at += 32;
        if (n - at >= 16)
            columns(x + at, y + at, a->reduced, a->inner, 16), at += 16;
        if (n - at >= 8)
            columns(x + at, y + at, a->reduced, a->inner, 8), at += 8;
        if (n > at)
            columns(x + at, y + at, a->reduced, a->inner, n - at);
    }
}
