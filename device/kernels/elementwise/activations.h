/* Activations in f32, from operations that vectorize, without divisions. With EK_HALF, results are
 * within 2 ulp of f16: polynomials are shorter, and arguments are clamped in f16, which takes half
 * as many instructions. On 64-bit ARM, piecewise.h replaces most of these.
 *
 * Polynomials are minimax: least squares on 3000 Chebyshev nodes, whose weights are multiplied by
 * their errors until all errors are equal (Lawson), in f64. The comments give errors before
 * rounding to f32. */
#ifndef EK_ACTIVATIONS_H
#define EK_ACTIVATIONS_H
#include <math.h>
#include "../kernel.h"
#include "exp.h"
#include "log.h"

#ifdef EK_HALF
typedef _Float16 ek_argument;
#else
typedef float ek_argument;
#endif

#define EK_SIXTH 0.16662598f /* in f16 */
#define EK_SIXTH_REST (1.0f / 6.0f - EK_SIXTH)

#define EK_ACTIVATION static inline __attribute__((always_inline, unused))

EK_ACTIVATION ek_argument ek_bounded(ek_argument x, ek_argument low, ek_argument high) {
    const ek_argument above = EK_AT_LEAST(x, low);
    return EK_AT_MOST(above, high);
}

/* 1 / d for d from 2^-126 to 2^126, within 1.4e-4: from the bits of d an estimate within 5.1%, and
 * a step of third order. */
EK_ACTIVATION float ek_reciprocal(float d) {
    uint32_t bits;
    float y, rest;
    memcpy(&bits, &d, 4);
    bits = 0x7EF30000u - bits;
    memcpy(&y, &bits, 4);
    rest = 1.0f - d * y;
    rest = rest * rest + rest;
    return y * rest + y;
}

/* a / d, within 1.4e-4 (EK_HALF) or, by a step of Newton, 1 ulp. */
EK_ACTIVATION float ek_ratio(float a, float d) {
    const float y = ek_reciprocal(d), q = a * y;
#ifdef EK_HALF
    return q;
#else
    return y * (a - d * q) + q;
#endif
}

/* e^x = scale + scale * part, where scale is a power of 2. */
typedef struct {
    float scale, part;
} ek_power;

#define EK_SHIFT 12583039.0f /* 1.5 * 2^23 rounds to an integer; 127 is the bias of exponents */

/* The power of 2 whose logarithm was added to EK_SHIFT. */
EK_ACTIVATION float ek_scale(float shifted) {
    uint32_t bits;
    float scale;
    memcpy(&bits, &shifted, 4);
    bits <<= 23;
    memcpy(&scale, &bits, 4);
    return scale;
}

/* For |x| <= 87.3: x = n ln2 + r with |r| <= ln2 / 2. (e^r - 1) / r within 1.5e-5 (EK_HALF)
 * or 1e-8. */
EK_ACTIVATION ek_power ek_power_of(float x) {
    const float shifted = x * 1.44269504f + EK_SHIFT, n = shifted - EK_SHIFT;
#ifdef EK_HALF
    const float r = x - n * 0.69314718f;
    float p = 4.166659e-2f;
    p = p * r + 1.6766717e-1f;
    p = p * r + 5.0001252e-1f;
    p = p * r + 9.9998511e-1f;
    return (ek_power){ek_scale(shifted), p * r};
#else
    const float q = (n * 0.693359375f - x) - n * 2.12194440e-4f;
    return (ek_power){ek_scale(shifted), -ek_fallen(q)};
#endif
}

#ifdef EK_HALF
/* e^(factor * x) for |factor * x| <= 87: 2^r for |r| <= 1/2 within 7.5e-5. */
EK_ACTIVATION float ek_exp_scaled(float x, float factor) {
    const float each = factor * 1.44269504f, shifted = x * each + EK_SHIFT;
    const float r = x * each + (EK_SHIFT - shifted); /* no negation */
    float p = 5.5171671e-2f;
    p = p * r + 2.4261112e-1f;
    p = p * r + 6.9326099e-1f;
    p = p * r + 9.9992807e-1f;
    return p * ek_scale(shifted);
}

#define EK_EDGE 80.0f /* e^-80 times the largest f16 rounds to 0 */
EK_ACTIVATION float ek_exp(ek_argument x) {
    return ek_exp_scaled(ek_bounded(x, -24.0f16, 12.0f16), 1.0f);
}

EK_ACTIVATION float ek_logistic(ek_argument x) {
    const ek_argument a = ek_bounded(x, -(ek_argument)EK_EDGE, (ek_argument)EK_EDGE);
    return ek_ratio(1.0f, 1.0f + ek_exp_scaled(a, -1.0f));
}

/* x / (1 + e^(-p x)); 0 for x = -inf if p > 0. */
EK_ACTIVATION float ek_silu(ek_argument x, float p) {
    const float size = p < 0.0f ? -p : p;
    const ek_argument edge = (ek_argument)(EK_EDGE / size);
    const ek_argument low = (ek_argument)(-EK_EDGE / (p < 0.0f ? 0.0f : p)); /* -inf or -edge */
    const ek_argument factor = EK_AT_LEAST(x, low);
    return ek_ratio(factor, 1.0f + ek_exp_scaled(ek_bounded(factor, -edge, edge), -p));
}
#else
#define EK_EDGE 110.0f   /* e^-110 times its argument rounds to 0 */
#define EK_FALL 0x1p-36f /* results are 2^36 times as large until the end: e^-110 is too small */
#define EK_SHIFT_RISEN (EK_SHIFT + 36.0f)

EK_ACTIVATION float ek_exp(float x) {
    return ek_expf(x);
}

/* 1 / (1 + e^-x), by the reciprocal of 2^-36 (1 + e^-x). */
EK_ACTIVATION float ek_logistic(float x) {
    const float a = ek_bounded(x, -EK_EDGE, 20.0f), shift = EK_SHIFT - 36.0f;
    const float shifted = a * -1.44269504f + shift, n = shifted - shift, scale = ek_scale(shifted);
    const float q = (a + n * 0.693359375f) - n * 2.12194440e-4f;
    return ek_ratio(1.0f, (scale + EK_FALL) - scale * ek_fallen(q)) * EK_FALL;
}

/* 2^36 m t / (1 + t), where 2^36 t = scale - scale * fallen. */
EK_ACTIVATION float ek_share(float m, float scale, float fallen) {
    const float risen = scale - scale * fallen;
    return ek_ratio(m * risen, risen * EK_FALL + 1.0f);
}

/* x / (1 + e^(-p x)); for p > 0 this is max(x, 0) - m t / (1 + t), m = |x| and t = e^(-p m). */
EK_ACTIVATION float ek_silu(float x, float p) {
    const float sign = p < 0.0f ? -1.0f : 1.0f, size = p * sign, edge = EK_EDGE / size;
    const float signed_x = x * sign, a = __builtin_elementwise_abs(x), m = EK_AT_MOST(a, edge);
    const float shifted = m * (size * -1.44269504f) + EK_SHIFT_RISEN, n = shifted - EK_SHIFT_RISEN;
    const float q = (m * size + n * 0.693359375f) - n * 2.12194440e-4f;
    const float share = ek_share(m, ek_scale(shifted), ek_fallen(q));
    return (EK_AT_LEAST(signed_x, 0.0f) - share * EK_FALL) * sign;
}
#endif

#ifdef EK_HALF
/* x P(x^2) / Q(x^2) within 3.3e-5 up to 4.6, where tanh is 1 in f16. Q(0) is chosen such that the
 * reciprocal of Q(4.6^2) is nearly exact. */
EK_ACTIVATION float ek_tanh(ek_argument x) {
    const float a = ek_bounded(x, -4.6f16, 4.6f16), z = a * a;
    const float p = (0.00101823178f * z + 0.148700829f) * z + 1.43495396f;
    const float q = (0.0189375659f * z + 0.626731486f) * z + 1.435f;
    return ek_ratio(a * p, q);
}

/* x P(x^2) within 1.9e-4 up to 2.7, where erf is 1 in f16. */
EK_ACTIVATION float ek_erf(ek_argument x) {
    const float a = ek_bounded(x, -2.7f16, 2.7f16), z = a * a;
    float p = 7.254042e-6f;
    p = p * z - 2.21271763e-4f;
    p = p * z + 2.89850454e-3f;
    p = p * z - 2.17990683e-2f;
    p = p * z + 1.07090406e-1f;
    p = p * z - 3.73501966e-1f;
    p = p * z + 1.12816602f;
    return a * p;
}

/* max(x, 0) - |x| Phi(-|x|), where log2 Phi(-m) is within 4.7e-4 up to 5.8: |x| Phi(-|x|) rounds to
 * 0 from there. */
EK_ACTIVATION _Float16 ek_gelu(ek_argument x) {
    const ek_argument size = __builtin_elementwise_abs(x);
    const float m = EK_AT_MOST(size, 5.8f16);
    float p = -2.13112892e-4f;
    p = p * m + 4.6171607e-3f;
    p = p * m - 4.35068995e-2f;
    p = p * m - 4.71570444e-1f;
    p = p * m - 1.14514603f;
    p = p * m - 1.00046095f;
    return EK_AT_LEAST(x, 0.0f16) - (_Float16)(m * ek_exp_scaled(p, 0.69314718f));
}

/* max(x, 0) + ln(1 + e^-|x|); ln(1 + t) / t within 5.7e-5. */
EK_ACTIVATION float ek_softplus(ek_argument x) {
    const ek_argument size = __builtin_elementwise_abs(x);
    const float t = ek_exp_scaled(EK_AT_MOST(size, 24.0f16), -1.0f);
    float p = 4.134729e-2f;
    p = p * t - 1.5742718e-1f;
    p = p * t + 3.0630092e-1f;
    p = p * t - 4.969778e-1f;
    p = p * t + 9.9994328e-1f;
    return p * t + (float)EK_AT_LEAST(x, 0.0f16);
}
#else
/* (e^2x - 1) / (e^2x + 1). */
EK_ACTIVATION float ek_tanh(float x) {
    const ek_power e = ek_power_of(2.0f * ek_bounded(x, -10.0f, 10.0f));
    const float above = e.scale * e.part + (e.scale - 1.0f);
    return ek_ratio(above, above + 2.0f);
}

/* The minimax quotient x P(x^2) / Q(x^2) within 2e-8 (4e-7 with rounding); from 3.92 up, erf is 1
 * in f32. */
EK_ACTIVATION float ek_erf(float x) {
    const float a = ek_bounded(x, -3.92f, 3.92f), z = a * a;
    float p = 2.0500740447459975e-6f;
    p = p * z + 2.84883426502347e-4f;
    p = p * z + 3.7656647618860006e-3f;
    p = p * z + 5.2748873829841614e-2f;
    p = p * z + 1.904076188802719e-1f;
    p = p * z + 1.1283791065216064f;
    float q = 3.8091613532742485e-5f;
    q = q * z + 1.162546337582171e-3f;
    q = q * z + 1.4969314448535442e-2f;
    q = q * z + 1.141095906496048e-1f;
    q = q * z + 5.020771026611328e-1f;
    q = q * z + 1.0f;
    return ek_ratio(a * p, q);
}

/* max(x, 0) - m e^(-m^2 / 2) P(m) / Q(m), where m = |x|; P / Q is within 1.9e-8. The exponent is
 * up to 104: the rounding of m^2 must not be part of it. */
EK_ACTIVATION float ek_gelu(float x) {
    const float a = __builtin_elementwise_abs(x), m = EK_AT_MOST(a, 14.4f), z = m * m;
    const float shifted = z * -0.72134752f + EK_SHIFT_RISEN, n = shifted - EK_SHIFT_RISEN;
    const float q = (m * (0.5f * m) + n * 0.693359375f) - n * 2.12194440e-4f;
    const float p1 = 0.43809098f * m + 0.5f, p2 = 0.040582135f * m + 0.18308379f;
    const float d1 = 1.6740669f * m + 1.0f, d2 = 0.46907103f * m + 1.201875f;
    const float p = (0.0041087056f * z + p2) * z + p1;
    const float d = ((0.010298876f * m + 0.101730846f) * z + d2) * z + d1;
    const float top = m * p * ek_scale(shifted);
    return EK_AT_LEAST(x, 0.0f) - ek_ratio(top - top * ek_fallen(q), d) * EK_FALL;
}

EK_ACTIVATION float ek_softplus(float x) {
    return (x > 0.0f ? x : 0.0f) + ek_log1pf_unit(ek_expf(x > 0.0f ? -x : x));
}
#endif

#ifdef EK_HALF
/* x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3). */
EK_ACTIVATION float ek_gelu_tanh(ek_argument x) {
    const ek_argument factor = EK_AT_LEAST(x, (ek_argument)-9.5f);
    const float a = EK_AT_MOST(factor, (ek_argument)9.5f);
    const float twice = a * (a * a * 0.071354816f + 1.5957691f);
    return ek_ratio(factor, 1.0f + ek_exp_scaled(twice, -1.0f));
}
#else
/* max(x, 0) - m t / (1 + t), m = |x|, t = 2^-(m w), w = log2(e) sqrt(8 / pi) (1 + 0.044715 m^2).
 * The exponent is up to 155: `rest` is what w lacks by rounding. */
EK_ACTIVATION float ek_gelu_tanh(float x) {
    const float a = __builtin_elementwise_abs(x), m = EK_AT_MOST(a, 10.85f), z = m * m;
    const float w = z * 0.102943242f + 2.302734375f;
    float rest = z * 0.102943242f + (2.302734375f - w);
    rest = (m * m - z) * 0.102943242f + rest;
    rest = z * -2.0161984e-09f + rest - 5.26176856e-4f;
    const float shifted = EK_SHIFT_RISEN - m * w;
    const float q = (m * w + (shifted - EK_SHIFT_RISEN)) + m * rest, y = q * q;
    const float p2 = 0.24022648f - 0.055503596f * q, p4 = 0.009618506f - 0.0013391025f * q;
    const float fallen = 0.6931472f * q - ((0.00015326781f * y + p4) * y + p2) * y;
    return EK_AT_LEAST(x, 0.0f) - ek_share(m, ek_scale(shifted), fallen) * EK_FALL;
}
#endif

/* e^x - 1 for x <= 0. */
EK_ACTIVATION float ek_expm1_falling(float x) {
    const ek_power e = ek_power_of(EK_AT_LEAST(x, -80.0f));
    return e.scale * e.part + (e.scale - 1.0f);
}
#endif
