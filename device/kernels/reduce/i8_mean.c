/* Mean of quantized values: an exact sum, then one factor that both rescales and divides, like
 * TFLite. For a sum, the factor only rescales, or with IN_FLOAT the sum is rescaled in f32.
 * With TO_SUMS, results are sums without zero points, which another call (TX int32_t) averages.
 * Compile-time parameters: NAME, EK_SIMD, TX (int8_t, uint8_t, int16_t, int32_t), TY (or TX). */
#include <math.h>
#include "mean.h"

#define BLOCK EK_REDUCE_BLOCK

#ifndef TY
#define TY TX
#endif

#if defined TO_SUMS
static int32_t rescale(int32_t sum, const ek_mean_args *a) {
    return sum - (int32_t)a->reduced * a->x_zero;
}
#elif defined IN_FLOAT
static int32_t rescale(int32_t sum, const ek_mean_args *a) {
#pragma STDC FP_CONTRACT OFF
    return (int32_t)fminf(fmaxf(roundf((float)sum * a->step + a->bias), -2e9f), 2e9f);
}
#else
static int32_t rescale(int32_t sum, const ek_mean_args *a) {
    const int32_t x = sum - a->x_zero * (int32_t)a->reduced;
    int64_t wide = (int64_t)(x * (1 << a->left)) * a->multiplier + (1LL << 30);
    int32_t high = (int32_t)(wide >> 31), mask = (int32_t)((1u << a->right) - 1);
    return (high >> a->right) + ((high & mask) > (mask >> 1) + (high < 0));
}
#endif

/* Task: outer index x block of inner. */
void NAME(const void *args, long begin, long end) {
    const ek_mean_args *a = args;
    long blocks = (a->inner + BLOCK - 1) / BLOCK;
    for (long t = begin; t < end; t++) {
        long from = t % blocks * BLOCK, n = ek_min(BLOCK, a->inner - from);
        const TX *x = (const TX *)a->x + t / blocks * a->reduced * a->inner + from;
        TY *y = (TY *)a->y + t / blocks * a->inner + from;
        int32_t sum[BLOCK] = {0};
        for (long r = 0; r < a->reduced; r++)
            for (long i = 0; i < n; i++)
                sum[i] += x[r * a->inner + i];
        for (long i = 0; i < n; i++) {
            int32_t v = rescale(sum[i], a) + a->y_zero;
            y[i] = (TY)(v < a->low ? a->low : v > a->high ? a->high : v);
        }
    }
}
