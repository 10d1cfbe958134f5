/* e^x of f32 vectors: EK_VL lanes, regardless of the type of a vf. */
#ifndef EK_EXP_VECTOR_H
#define EK_EXP_VECTOR_H
#include "../kernel.h"
#include "activations.h"

#if !defined EK_HALF
typedef vf ek_wide;
#else
typedef float ek_wide __attribute__((vector_size(4 * EK_VL)));
#endif

EK_INLINE ek_wide ek_wide_splat(float x) {
    return x - (ek_wide){0};
}

#ifdef EK_HALF
/* v[p] = e^v[p] for v[p] <= 0, within 7.5e-5, as ek_exp_scaled of activations.h. Each step is
 * applied to `count` vectors before the next, because in-order cores would wait for each result. */
EK_INLINE void ek_exp_falling(ek_wide *v, const int count) {
    static const float factor[] = {5.5171671e-2f, 2.4261112e-1f, 6.9326099e-1f, 9.9992807e-1f};
    const ek_wide least = ek_wide_splat(-80.0f), shift = ek_wide_splat(EK_SHIFT);
    ek_wide r[4], power[4], p[4];
    EK_UNROLL
    for (int i = 0; i < count; i++) {
        const ek_wide x = __builtin_elementwise_max(v[i], least);
        const ek_wide shifted = x * 1.44269504f + shift;
        vu bits;
        r[i] = x * 1.44269504f - (shifted - shift);
        memcpy(&bits, &shifted, sizeof bits);
        bits <<= 23;
        memcpy(&power[i], &bits, sizeof bits);
    }
    EK_UNROLL
    for (int i = 0; i < count; i++)
        p[i] = r[i] * factor[0] + factor[1];
    EK_UNROLL
    for (int k = 2; k < 4; k++) {
        EK_UNROLL
        for (int i = 0; i < count; i++)
            p[i] = p[i] * r[i] + factor[k];
    }
    EK_UNROLL
    for (int i = 0; i < count; i++)
        v[i] = p[i] * power[i];
}
#else
/* v[p] = e^v[p] for v[p] <= 0, computed like ek_expf of exp.h: x = n ln2 + r. Each step is applied
 * to `count` vectors before the next, because in-order cores would wait for each result. */
EK_INLINE void ek_exp_falling(ek_wide *v, const int count) {
    static const float factor[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                   4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    const ek_wide least = ek_wide_splat(-87.3f), shift = ek_wide_splat(12582912.0f);
    ek_wide r[4], power[4], p[4];
    vi gone[4];
    EK_UNROLL
    for (int i = 0; i < count; i++) {
        gone[i] = EK_MASK(v[i] < least);
        const ek_wide shifted = v[i] * 1.44269504f + shift, n = shifted - shift;
        r[i] = (v[i] - n * 0.693359375f) + n * 2.12194440e-4f;
        /* n is in the low bits of `shifted`. */
        vu bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits + 127) << 23;
        memcpy(&power[i], &bits, sizeof bits);
    }
    EK_UNROLL
    for (int i = 0; i < count; i++)
        p[i] = r[i] * factor[0] + factor[1];
    EK_UNROLL
    for (int k = 2; k < 6; k++) {
        EK_UNROLL
        for (int i = 0; i < count; i++)
            p[i] = p[i] * r[i] + factor[k];
    }
    EK_UNROLL
    for (int i = 0; i < count; i++)
        v[i] = (p[i] * r[i]) * r[i] + r[i] + 1.0f;
    EK_UNROLL
    for (int i = 0; i < count; i++) {
        const ek_wide y = v[i] * power[i];
#if EK_VL > 1
        v[i] = (ek_wide)((vi)y & ~gone[i]);
#else
        v[i] = gone[i] ? 0.0f : y;
#endif
    }
}
#endif
#endif
