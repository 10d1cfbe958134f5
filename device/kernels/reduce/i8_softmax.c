/* Softmax, 8-bit, in TFLite's fixed-point arithmetic: powers come from a table, the division uses
 * three Newton steps. Compile-time parameters: NAME, EK_SIMD, TX (int8_t, uint8_t), SUM_BITS
 * (integer bits of the sum of powers). */
#include "softmax.h"
#include "reciprocal.h"

#define LOWEST (((TX) - 1 > 0) ? 0 : -128)
#define HIGHEST (LOWEST + 255)

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_softmax_args *a = args;
    for (long t = begin; t < end; t++) {
        const TX *x = (const TX *)a->x + t * a->n;
        TX *y = (TX *)a->y + t * a->n;
        int largest = x[0];
        for (long i = 1; i < a->n; i++)
            largest = x[i] > largest ? x[i] : largest;
        uint32_t total = 0;
        for (long i = 0; i < a->n; i++)
            total += (uint32_t)a->term[largest - x[i]];
        int headroom = __builtin_clz(total);
        int64_t reciprocal = ek_one_over_one_plus(((int64_t)total << headroom) - (1LL << 31));
        for (long i = 0; i < a->n; i++) {
            int64_t scaled = ek_mulhi(reciprocal, a->power[largest - x[i]]);
            int64_t v = ek_rounding_shift(scaled, SUM_BITS - headroom + 31 - 8) + LOWEST;
            y[i] = (TX)(v < LOWEST ? LOWEST : v > HIGHEST ? HIGHEST : v);
        }
    }
}
