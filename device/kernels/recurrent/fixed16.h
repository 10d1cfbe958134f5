/* Fixed-point arithmetic of TFLite's integer LSTMs. 16-bit values are held in int32_t; Qk has k
 * integer bits and 15 - k fraction bits. */
#ifndef EK_FIXED16_H
#define EK_FIXED16_H
#include "factor.h"

static inline int32_t ek_bounded(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}
static inline int32_t ek_short(int32_t x) {
    return ek_bounded(x, INT16_MIN, INT16_MAX);
}

/* x * 2^-n, rounded half away from zero; 0 <= n < 31. */
static inline int32_t ek_shifted(int32_t x, int n) {
    const int32_t mask = (int32_t)((1u << n) - 1);
    return (x >> n) + ((x & mask) > (mask >> 1) + (x < 0));
}

/* x times the factor, with double rounding. */
static inline int32_t ek_rescaled(int32_t x, ek_factor f) {
    const int32_t shifted = (int32_t)((uint32_t)x << (f.shift > 0 ? f.shift : 0));
    const int64_t product = (int64_t)shifted * f.multiplier;
    const int64_t high = (product + (product < 0 ? 1 - (1LL << 30) : 1LL << 30)) / (1LL << 31);
    const int n = f.shift < 0 ? -f.shift : 0;
    const int64_t mask = (1LL << n) - 1;
    return (int32_t)((high >> n) + ((high & mask) > (mask >> 1) + (high < 0)));
}

/* 2ab / 2^16. */
static inline int32_t ek_multiply16(int32_t a, int32_t b) {
    const int32_t product = a * b;
    const int32_t y = (product + (product < 0 ? 1 - (1 << 14) : 1 << 14)) / (1 << 15);
    return y > INT16_MAX ? INT16_MAX : y;
}

/* exp(a) for a <= 0 in Q`bits`; the result is Q0. */
EK_INLINE int32_t ek_exp16(int32_t a, int bits) {
    /* exp(-2^k) for k = -2 .. 4 */
    static const int16_t powers[] = {25520, 19875, 12055, 4435, 600, 11, 0};
    const int fraction = 15 - bits;
    const int32_t quarter = 1 << (fraction - 2), below = (a & (quarter - 1)) - quarter;
    const int32_t rest = below - a;
    /* the remainder: a Taylor series around -1/8 */
    const int32_t x = below * (1 << bits) + (1 << 12);
    const int32_t x2 = ek_multiply16(x, x), x3 = ek_multiply16(x2, x), x4 = ek_multiply16(x2, x2);
    const int32_t cubic = ek_multiply16(ek_shifted(x4, 2) + x3, 10923);
    int32_t y = 28918 + ek_multiply16(28918, x + ek_shifted(cubic + x2, 1));
    EK_UNROLL
    for (int i = 0; i < 7; i++)
        y = i - 2 < bits && rest >> (fraction + i - 2) & 1 ? ek_multiply16(y, powers[i]) : y;
    if (bits > 5 && a < -(1 << (fraction + 5)))
        y = 0;
    return a == 0 ? INT16_MAX : y;
}

/* 1 / (1 + a) for a in Q0, by three Newton steps; the result is Q2. */
EK_INLINE int32_t ek_reciprocal16(int32_t a) {
    const int32_t half = (a + INT16_MAX + 1) >> 1;
    int32_t x = 23130 + ek_multiply16(half, -15420);
    for (int i = 0; i < 3; i++)
        x += ek_short(ek_multiply16(x, (1 << 13) - ek_multiply16(half, x)) * 4);
    return x;
}

/* The logistic function of x in Q3, and tanh of x in Q`bits`; results are Q0. */
EK_INLINE int32_t ek_logistic16(int32_t x) {
    const int32_t y = ek_short(ek_reciprocal16(ek_exp16(x < 0 ? x : -x, 3)) * 2);
    return x == 0 ? 1 << 14 : x > 0 ? y : INT16_MAX - y;
}
EK_INLINE int32_t ek_tanh16(int32_t x, int bits) {
    const int32_t y = ek_reciprocal16(ek_exp16(x < 0 ? x : -x, bits + 1)) - (1 << 13);
    const int32_t magnitude = ek_short(y * 4);
    return x == 0 ? 0 : x < 0 ? -magnitude : magnitude;
}

/* Dot products modulo 2^32. */
#define EK_DOT(NAME, TYPE)                                                                         \
    static inline int32_t NAME(const TYPE *a, const TYPE *b, long n, int32_t start) {              \
        uint32_t sum = (uint32_t)start;                                                            \
        for (long i = 0; i < n; i++)                                                               \
            sum += (uint32_t)((int32_t)a[i] * b[i]);                                               \
        return (int32_t)sum;                                                                       \
    }
#endif
