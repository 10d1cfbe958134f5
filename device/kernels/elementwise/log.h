/* Natural logarithms in f32, within 2 ulp, using only operations that vectorize. */
#ifndef EK_LOG_H
#define EK_LOG_H
#include <math.h>
#include <stdint.h>
#include <string.h>

/* ln((1 + m) * 2^e) for 1 + m in [sqrt(1/2), sqrt(2)]: m - m^2 / 2 + m^3 P(m), where P is the
 * minimax polynomial of Cephes' logf (S. L. Moshier). */
static inline float ek_log_near(float m, float e) {
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float y = p * m * z - 2.12194440e-4f * e;
    y = y - 0.5f * z;
    return m + y + 0.693359375f * e;
}

/* ln(1 + t), 0 <= t <= 1. */
static inline __attribute__((unused)) float ek_log1pf_unit(float t) {
    const float halved = 0.5f * (t - 1.0f);
    return ek_log_near(t > 0.41421356f ? halved : t, t > 0.41421356f ? 1.0f : 0.0f);
}

static inline __attribute__((unused)) float ek_logf(float x) {
    const int tiny = x < 1.17549435e-38f;
    const float scaled = tiny ? x * 8388608.0f : x;
    uint32_t bits;
    memcpy(&bits, &scaled, 4);
    const int32_t exponent = (int32_t)(bits >> 23 & 255) - (tiny ? 149 : 126);
    bits = (bits & 0x7FFFFF) | 0x3F000000;
    float half; /* [1/2, 1) */
    memcpy(&half, &bits, 4);
    const int low = half < 0.70710678f;
    const float m = low ? half + half - 1.0f : half - 1.0f;
    float y = ek_log_near(m, (float)(exponent - low));
    y = x == (float)INFINITY ? x : y;
    y = x < 0.0f ? (float)NAN : y;
    y = x == 0.0f ? -(float)INFINITY : y;
    return x == x ? y : x;
}
#endif
