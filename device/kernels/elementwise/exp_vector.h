/* Powers of f32 vectors: EK_VL lanes, regardless of the type of a vf. */
#ifndef EK_EXP_VECTOR_H
#define EK_EXP_VECTOR_H
#include <math.h>
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

/* log2(e) in two parts. */
#define EK_LOG2E 1.44269502f
#define EK_LOG2E_REST 1.92596299e-8f

/* v[p] = e^(beta v[p]) 2^raise, where each[] has beta log2(e) in two parts and shift is EK_SHIFT +
 * raise; 2^r for |r| <= 1/2 is within 3.1e-9. With EK_HALF it is within 7.5e-5 and, to save an
 * instruction, 18.1 times as large. Each step is applied to `count` vectors before the next,
 * because in-order cores would wait for each result. */
EK_INLINE void ek_powers(ek_wide *v, const float each[2], float shift, const int count) {
    const ek_wide shifts = ek_wide_splat(shift);
    ek_wide r[4], z[4], power[4], p[4];
    EK_UNROLL
    for (int i = 0; i < count; i++) {
        const ek_wide shifted = v[i] * each[0] + shifts;
        vu bits;
        r[i] = v[i] * each[0] + (shifts - shifted);
#ifndef EK_HALF
        r[i] = v[i] * each[1] + r[i];
#endif
        memcpy(&bits, &shifted, sizeof bits);
        bits <<= 23;
        memcpy(&power[i], &bits, sizeof bits);
    }
    EK_UNROLL
    for (int i = 0; i < count; i++)
        z[i] = r[i] * r[i];
#ifdef EK_HALF
    EK_UNROLL
    for (int i = 0; i < count; i++)
        p[i] = (r[i] + 2.338339f) * (r[i] * 2.0590467f + (z[i] + 7.7507753f));
    EK_UNROLL
    for (int i = 0; i < count; i++)
        v[i] = p[i] * power[i];
#else
    EK_UNROLL
    for (int i = 0; i < count; i++)
        p[i] = z[i] * 0.00015326781f + (r[i] * 0.0013391025f + 0.009618506f);
    EK_UNROLL
    for (int i = 0; i < count; i++)
        p[i] = p[i] * z[i] + (r[i] * 0.055503596f + 0.24022648f);
    EK_UNROLL
    for (int i = 0; i < count; i++)
        p[i] = p[i] * z[i] + r[i] * 0.6931472f;
    EK_UNROLL
    for (int i = 0; i < count; i++)
        v[i] = p[i] * power[i] + power[i];
#endif
}
#endif
