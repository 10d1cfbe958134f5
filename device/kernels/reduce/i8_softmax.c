/* Softmax, 8-bit, in TFLite's fixed-point arithmetic: the powers come from a table, the division
 * from three Newton steps. Compile-time parameters: NAME, EK_SIMD, TX (int8_t, uint8_t). */
#include "softmax.h"

#define LOWEST (((TX) - 1 > 0) ? 0 : -128)
#define HIGHEST (LOWEST + 255)

static int64_t mulhi(int64_t a, int64_t b) {
    return (a * b + (1LL << 30)) >> 31;
}

static int64_t rounding_shift(int64_t x, int n) {
    int64_t mask = (1LL << n) - 1;
    return (x >> n) + ((x & mask) > (mask >> 1) + (x < 0));
}

static int64_t saturate(int64_t x) {
    return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x;
}

/* 1 / (1 + a) of a in [0, 1], both Q31: Newton steps on Q29 values from 48/17 - 32/17 d. */
static int64_t one_over_one_plus(int64_t a) {
    int64_t half = (a + INT32_MAX + 1) >> 1;
    int64_t x = 1515870810 + mulhi(half, -1010580540);
    for (int i = 0; i < 3; i++)
        x += saturate(mulhi(x, (1 << 29) - mulhi(half, x)) * 4);
    return saturate(x * 2);
}

/* Tasks: rows. */
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
        int64_t reciprocal = one_over_one_plus(((int64_t)total << headroom) - (1LL << 31));
        for (long i = 0; i < a->n; i++) {
            int64_t scaled = mulhi(reciprocal, a->power[largest - x[i]]);
            int64_t v = rounding_shift(scaled, 12 - headroom + 31 - 8) + LOWEST;
            y[i] = (TX)(v < LOWEST ? LOWEST : v > HIGHEST ? HIGHEST : v);
        }
    }
}
