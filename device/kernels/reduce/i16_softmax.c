/* Softmax, 16-bit, in TFLite's fixed-point arithmetic: powers come from a table, the inverse of
 * their sum from a second table with linear interpolation. Compile-time parameters: NAME,
 * EK_SIMD. */
#include "softmax.h"

#define LINE 128 /* values of x per table interval */

/* 1 / (1 + x) in Q15 for x from 0 to 1 in steps of 2^-16. */
static int32_t inverse(const int16_t *table, int32_t x) {
    const int16_t *end = table + x / LINE;
    return end[0] + (((end[1] - end[0]) * (x % LINE) + LINE / 2) >> 7);
}

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_softmax_args *a = args;
    for (long t = begin; t < end; t++) {
        const int16_t *x = (const int16_t *)a->x + t * a->n;
        int16_t *y = (int16_t *)a->y + t * a->n;
        int32_t largest = x[0];
        for (long i = 1; i < a->n; i++)
            largest = x[i] > largest ? x[i] : largest;
        uint32_t total = 0;
        for (long i = 0; i < a->n; i++)
            total += (uint32_t)a->power_q15[largest - x[i]];
        const int zeros = __builtin_clz(total), right = 31 - zeros;
        /* The sum as 1 + x; rounding up may yield x = 1. */
        const int32_t mantissa = (int32_t)((((int64_t)total << (zeros - 1)) + (1 << 13)) >> 14);
        const int32_t over = mantissa - (1 << 16);
        const int32_t factor = inverse(a->inverse, over > 65535 ? 65535 : over);
        for (long i = 0; i < a->n; i++) {
            const int64_t product = (int64_t)a->power_q15[largest - x[i]] * factor;
            const int64_t v = (product + (1LL << (right - 1))) >> right;
            y[i] = (int16_t)(v < 0 ? 0 : v > INT16_MAX ? INT16_MAX : v);
        }
    }
}
