/* Reciprocals in fixed point, Q31 in 64 bits, as in gemmlowp. */
#ifndef EK_RECIPROCAL_H
#define EK_RECIPROCAL_H
#include "../kernel.h"

static inline int64_t ek_mulhi(int64_t a, int64_t b) {
    return (a * b + (1LL << 30)) >> 31;
}

static inline int64_t ek_rounding_shift(int64_t x, int n) {
    int64_t mask = (1LL << n) - 1;
    return (x >> n) + ((x & mask) > (mask >> 1) + (x < 0));
}

static inline int64_t ek_saturate(int64_t x) {
    return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x;
}

/* 1 / (1 + a) for a in [0, 1], both Q31: Newton steps on Q29 values, starting at 48/17 - 32/17
 * d. */
static inline int64_t ek_one_over_one_plus(int64_t a) {
    int64_t half = (a + INT32_MAX + 1) >> 1;
    int64_t x = 1515870810 + ek_mulhi(half, -1010580540);
    for (int i = 0; i < 3; i++)
        x += ek_saturate(ek_mulhi(x, (1 << 29) - ek_mulhi(half, x)) * 4);
    return ek_saturate(x * 2);
}
#endif
