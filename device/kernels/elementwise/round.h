/* Rounding to nearest, halves away from zero, in operations that vectorize on every ISA.
 * (QEMU 7 does not survive changes of the rounding mode under RVV, nor narrowing conversions from
 * float: results are made 32-bit integers first.) */
#ifndef EK_ROUND_H
#define EK_ROUND_H
#include <stdint.h>

/* Exact for |x| < 2^31; larger values, which no 8-bit code has, stay that large. */
static inline float ek_round(float x) {
    x = x > -2e9f ? x : -2e9f;
    x = x < 2e9f ? x : 2e9f;
    float whole = (float)(int32_t)x, rest = x - whole;
    whole += rest >= 0.5f ? 1.0f : 0.0f;
    return whole - (rest <= -0.5f ? 1.0f : 0.0f);
}
#endif
