/* SiLU of f32 vectors on 64-bit ARM: x / (1 + e^-x) within 4 ulp, where x and the result are above
 * 2^-90 in magnitude. Takes 2/3 as many instructions as the formula of activations.h: compilers do
 * not vectorize estimates of reciprocals, and keep each factor in a register of its own, so that
 * four vectors in flight are spilled. */
#ifndef EK_SILU_VECTORS_H
#define EK_SILU_VECTORS_H
#include "activations.h"

#if defined OP_SILU && defined __aarch64__ && !defined EK_HALF
#include <arm_neon.h>
#define EK_BY_VECTORS 1
#define EK_VECTORS_FIT(p) ((p) == 1.0f)

/* ln2 in two parts and two factors of 1 - e^-q; the third, log2(e) and 2^-36. */
typedef struct {
    float32x4_t by, also;
} ek_silu_factors;

/* If the compiler knew them, it would keep each in a register of its own. */
EK_INLINE ek_silu_factors ek_silu_constants(void) {
    float32x4_t by = {0.693359375f, -2.12194440e-4f, -0.16666521f, -0.008368704f};
    float32x4_t also = {0.0013818939f, -1.44269504f, EK_FALL, 0.0f};
    __asm__("" : "+w"(by), "+w"(also));
    return (ek_silu_factors){by, also};
}

/* Applies it to `count` vectors. Each step is applied to all before the next, because in-order
 * cores would wait for each result. As in ek_logistic, divisors are multiplied by 2^-36. */
EK_INLINE void ek_silu_vectors(vf *v, const int count, const ek_silu_factors *f) {
    const float32x4_t by = f->by, also = f->also;
    const float32x4_t shift = vdupq_n_f32(EK_SHIFT - 36.0f), fall = vdupq_n_f32(EK_FALL);
    const float32x4_t low = vdupq_n_f32(-EK_EDGE), high = vdupq_n_f32(20.0f);
    const float32x4_t second = vdupq_n_f32(0.49999994f), fourth = vdupq_n_f32(0.04166829f);
    float32x4_t x[4], q[4], n[4], scale[4], z[4], p[4], r[4], y[4];
#define EACH EK_UNROLL for (int i = 0; i < count; i++)
    EACH x[i] = vmaxq_f32((float32x4_t)v[i], low);
    EACH q[i] = vminq_f32(x[i], high);
    EACH n[i] = vfmaq_laneq_f32(shift, q[i], also, 1);
    EACH scale[i] = vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(n[i]), 23));
    EACH n[i] = vsubq_f32(n[i], shift);
    EACH q[i] = vfmaq_laneq_f32(q[i], n[i], by, 0);
    EACH q[i] = vfmaq_laneq_f32(q[i], n[i], by, 1);
    EACH z[i] = vmulq_f32(q[i], q[i]);
    EACH p[i] = vfmaq_laneq_f32(fourth, q[i], by, 3);
    EACH p[i] = vfmaq_laneq_f32(p[i], z[i], also, 0);
    EACH r[i] = vfmaq_laneq_f32(second, q[i], by, 2);
    EACH r[i] = vfmaq_f32(r[i], p[i], z[i]);
    EACH q[i] = vfmsq_f32(q[i], r[i], z[i]);
    EACH z[i] = vaddq_f32(scale[i], fall);
    EACH z[i] = vfmsq_f32(z[i], scale[i], q[i]); /* 2^-36 (1 + e^-x) */
    EACH y[i] = vrecpeq_f32(z[i]);
    EACH y[i] = vmulq_f32(y[i], vrecpsq_f32(z[i], y[i]));
    EACH x[i] = vmulq_laneq_f32(x[i], also, 2);
    EACH y[i] = vmulq_f32(y[i], vrecpsq_f32(z[i], y[i]));
    EACH v[i] = (vf)vmulq_f32(x[i], y[i]);
#undef EACH
}

EK_INLINE void ek_silu_some(const int count, const float *x, float *y, const ek_silu_factors *f) {
    vf v[4];
    EK_UNROLL
    for (int i = 0; i < count; i++)
        v[i] = vf_load(x + i * EK_VL);
    ek_silu_vectors(v, count, f);
    EK_UNROLL
    for (int i = 0; i < count; i++)
        vf_store(y + i * EK_VL, v[i]);
}

/* y = f(x), also in place. */
EK_INLINE void ek_vectors_run(const float *x, float *y, long n) {
    const ek_silu_factors f = ek_silu_constants();
    long i = 0;
#pragma clang loop unroll(disable)
    for (; i + 4 * EK_VL <= n; i += 4 * EK_VL)
        ek_silu_some(4, x + i, y + i, &f);
    for (; i + 2 * EK_VL <= n; i += 2 * EK_VL)
        ek_silu_some(2, x + i, y + i, &f);
    for (; i + EK_VL <= n; i += EK_VL)
        ek_silu_some(1, x + i, y + i, &f);
    if (i < n) {
        vf v = vf_load_n(x + i, n - i);
        ek_silu_vectors(&v, 1, &f);
        vf_store_n(y + i, v, n - i);
    }
}
#endif
#endif
