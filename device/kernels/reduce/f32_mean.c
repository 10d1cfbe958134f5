/* Mean, f32. Compile-time parameters: NAME, EK_SIMD. */
#include "mean.h"

#define BLOCK 64 /* sums kept at once */

/* Tasks: outer x blocks of inner. */
void NAME(const void *args, long begin, long end) {
    const ek_mean_args *a = args;
    long blocks = (a->inner + BLOCK - 1) / BLOCK;
    for (long t = begin; t < end; t++) {
        long from = t % blocks * BLOCK, n = ek_min(BLOCK, a->inner - from);
        const float *x = (const float *)a->x + t / blocks * a->reduced * a->inner + from;
        float *y = (float *)a->y + t / blocks * a->inner + from, sum[BLOCK] = {0};
        for (long r = 0; r < a->reduced; r++)
            for (long i = 0; i < n; i++)
                sum[i] += x[r * a->inner + i];
        for (long i = 0; i < n; i++)
            y[i] = sum[i] / (float)a->reduced;
    }
}
