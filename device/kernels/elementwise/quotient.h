/* Quotients of 16-bit quantized values in fixed point, as in TFLite's integer division. A zero
 * divisor yields y_zero. */
#ifndef EK_QUOTIENT_H
#define EK_QUOTIENT_H
#include "../reduce/reciprocal.h"

typedef struct {
    int32_t a_zero, b_zero, y_zero, low, high;
    int32_t multiplier, shift; /* multiplier * 2^(shift - 31) */
} ek_quotient_factors;

/* a * b / 2^31, rounded half away from zero. */
static inline int64_t ek_doubled_high(int64_t a, int64_t b) {
    const int64_t product = a * b;
    return ek_saturate((product + (product < 0 ? 1 - (1LL << 30) : 1LL << 30)) / (1LL << 31));
}

static inline int32_t ek_quotient(int32_t a, int32_t b, const ek_quotient_factors *f) {
    int32_t over = a - f->a_zero, under = b - f->b_zero;
    if (under == 0)
        return f->y_zero;
    over = under < 0 ? -over : over;
    under = under < 0 ? -under : under;
    const int bits = 32 - __builtin_clz((unsigned)under);
    const int32_t size = over < 0 ? ~over : over;
    const int headroom = size ? __builtin_clz((unsigned)size) - 1 : 31;
    const int64_t inverse = ek_one_over_one_plus(((int64_t)under << (32 - bits)) - (1LL << 31));
    const int64_t quotient = ek_doubled_high(over * (1LL << headroom), inverse);
    const int right = bits - 1 + headroom - f->shift;
    const int64_t y = ek_rounding_shift(ek_doubled_high(quotient, f->multiplier),
                                        right < 0 ? 0 : ek_min(right, 62)) +
                      f->y_zero;
    return (int32_t)(y < f->low ? f->low : y > f->high ? f->high : y);
}
#endif
