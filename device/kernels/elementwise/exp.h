/* e^x in f32, within 1 ulp, using only operations that vectorize. */
#ifndef EK_EXP_H
#define EK_EXP_H
#include <stdint.h>
#include <string.h>

/* x = n ln2 + r with |r| <= ln2 / 2; e^x = 2^n * (1 + r + r^2 P(r)), where P is the minimax
 * polynomial of Cephes' expf (S. L. Moshier). Below -87.3 the result is 0 (no denormals), above
 * 88.7 it is infinite. */
static inline float ek_expf(float x) {
    const float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    float clamped = x > -87.3f ? x : -87.3f;
    clamped = clamped < 88.7f ? clamped : 88.7f;
    float shifted = clamped * log2e + 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    float n = shifted - 12582912.0f;
    float r = (clamped - n * ln2_high) - n * ln2_low;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float y = (p * r) * r + r + 1.0f;
#ifdef __riscv_vector
    /* Read n from the sum's low bits: QEMU 7.2 may abort on RVV's float-to-integer conversions. */
    int32_t integer;
    memcpy(&integer, &shifted, 4);
    integer -= 0x4B400000;
#else
    int32_t integer = (int32_t)n;
#endif
    int32_t half = integer >> 1; /* scale twice: 2^128 is not representable */
    uint32_t first = (uint32_t)(half + 127) << 23, second = (uint32_t)(integer - half + 127) << 23;
    float a, b;
    memcpy(&a, &first, 4);
    memcpy(&b, &second, 4);
    y = y * a * b;
    y = x < -87.3f ? 0.0f : y;
    y = x > 88.7f ? (float)INFINITY : y;
    return x == x ? y : x;
}
#endif
