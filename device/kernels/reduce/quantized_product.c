/* Products of quantized values: each step is scaled and rounded, like TFLite. Compile-time
 * parameters: NAME, EK_SIMD, TX (int8_t, uint8_t, int16_t). */
#include "mean.h"

#define BLOCK EK_REDUCE_BLOCK

static inline int32_t scaled(int64_t x, const ek_mean_args *a) {
    return (int32_t)((x * a->multiplier + (1LL << (a->right - 1))) >> a->right);
}

/* Task: outer index x block of inner. */
void NAME(const void *args, long begin, long end) {
    const ek_mean_args *a = args;
    const long blocks = (a->inner + BLOCK - 1) / BLOCK;
    for (long t = begin; t < end; t++) {
        const long from = t % blocks * BLOCK, n = ek_min(BLOCK, a->inner - from);
        const TX *x = (const TX *)a->x + t / blocks * a->reduced * a->inner + from;
        TX *y = (TX *)a->y + t / blocks * a->inner + from;
        int32_t product[BLOCK];
        for (long i = 0; i < n; i++)
            product[i] = x[i] - a->x_zero;
        for (long r = 1; r < a->reduced; r++)
            for (long i = 0; i < n; i++)
                product[i] = scaled((int64_t)product[i] * (x[r * a->inner + i] - a->x_zero), a);
        for (long i = 0; i < n; i++) {
            const int32_t v = scaled(product[i], a);
            const int64_t moved = (int64_t)v + a->y_zero;
            y[i] = (TX)(moved < a->low ? a->low : moved > a->high ? a->high : moved);
        }
    }
}
