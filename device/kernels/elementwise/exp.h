/* e^x in f32, within 1 ulp, using only operations that vectorize. */
#ifndef EK_EXP_H
#define EK_EXP_H
#include <stdint.h>
#include <string.h>
#include "../kernel.h"

/* 1 - e^-q for |q| <= ln2 / 2, within 3.2e-9. In pairs of terms: a step of Horner's scheme would
 * take two instructions on ARM, to copy the constant and to multiply. */
static inline float ek_fallen(float q) {
    const float z = q * q;
    const float low = 0.49999994f - 0.16666521f * q, high = 0.04166829f - 0.008368704f * q;
    return q - ((0.0013818939f * z + high) * z + low) * z;
}

/* x = n ln2 - q with |q| <= ln2 / 2. */
static inline float ek_expf(float x) {
    const float high = EK_AT_MOST(x, 89.0f), clamped = EK_AT_LEAST(high, -104.0f);
    const float shifted = clamped * 1.44269504f + 12582912.0f; /* 1.5 * 2^23 rounds to an integer */
    const float n = shifted - 12582912.0f;
    const float q = (n * 0.693359375f - clamped) - n * 2.12194440e-4f;
    /* Scale twice: 2^128 is not representable, nor are 2^-127 and below but as denormals. n is in
     * the low bits of `shifted`. */
    int32_t bits;
    memcpy(&bits, &shifted, 4);
    const int32_t half = bits >> 1;
    const uint32_t one = 0x3F800000u;
    const uint32_t first = ((uint32_t)half << 23) + one;
    const uint32_t second = ((uint32_t)(bits - half) << 23) + one;
    float a, b;
    memcpy(&a, &first, 4);
    memcpy(&b, &second, 4);
    return (a - a * ek_fallen(q)) * b;
}
#endif
