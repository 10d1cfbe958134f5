/* Activations of f16 vectors on 64-bit ARM, within 1.6 ulp: a cubic for each of 32 intervals of the
 * argument's magnitude, whose coefficients are looked up in registers (TBL). Takes half as many
 * instructions as the formulas of activations.h, which compute in f32.
 *
 * OP_*: the function; the tables are made by scripts/fit_activations.py. */
#ifndef EK_PIECEWISE_H
#define EK_PIECEWISE_H
#include "../kernel.h"

#if defined EK_HALF && defined __aarch64__ &&                                                      \
    (defined OP_LOGISTIC || defined OP_SOFTPLUS || defined OP_SILU || defined OP_GELU ||           \
     defined OP_GELU_TANH || defined OP_TANH || defined OP_ERF)
#include <arm_neon.h>
#define EK_BY_VECTORS 1

typedef struct {
    _Float16 most;    /* larger magnitudes have its value */
    _Float16 inverse; /* of the width */
    _Float16 width;
    uint16_t coefficient[4][32]; /* f16, of powers of the distance from the interval's center */
} ek_piecewise;
#include "piecewise_tables.h"

/* 32 coefficients, as bytes. */
EK_INLINE uint8x16x4_t ek_pieces_load(const uint16_t *from) {
    return vld1q_u8_x4((const uint8_t *)from);
}

/* P(|x|), from which the function is made. */
EK_INLINE float16x8_t ek_piece(float16x8_t x) {
    const ek_piecewise *all = &ek_pieces;
    const float16x8_t m = vminq_f16(vabsq_f16(x), vdupq_n_f16(all->most));
    const uint16x8_t piece = vcvtnq_u16_f16(vmulq_n_f16(m, all->inverse));
    const float16x8_t rest = vfmsq_n_f16(m, vcvtq_f16_u16(piece), all->width);
    /* The numbers of a coefficient's two bytes in its table. */
    const uint8x16_t at =
        vreinterpretq_u8_u16(vorrq_u16(vmulq_n_u16(piece, 0x0202), vdupq_n_u16(0x0100)));
    float16x8_t c[4];
    EK_UNROLL
    for (int k = 0; k < 4; k++)
        c[k] = vreinterpretq_f16_u8(vqtbl4q_u8(ek_pieces_load(all->coefficient[k]), at));
    c[2] = vfmaq_f16(c[2], c[3], rest);
    c[1] = vfmaq_f16(c[1], c[2], rest);
    return vfmaq_f16(c[0], c[1], rest);
}

EK_INLINE vf ek_piecewise_of(vf v) {
    const float16x8_t x = (float16x8_t)v, p = ek_piece(x);
#if defined OP_LOGISTIC
    return (vf)vbslq_f16(vcltzq_f16(x), p, vsubq_f16(vdupq_n_f16(1.0f16), p));
#elif defined OP_TANH || defined OP_ERF
    return (vf)vbslq_f16(vdupq_n_u16(0x8000), x, p);
#elif defined OP_SOFTPLUS
    return (vf)vaddq_f16(vmaxq_f16(x, vdupq_n_f16(0.0f16)), p);
#else
    return (vf)vsubq_f16(vmaxq_f16(x, vdupq_n_f16(0.0f16)), p);
#endif
}

/* Whether it computes the function with this parameter. */
#ifdef OP_SILU
#define EK_VECTORS_FIT(p) ((p) == 1.0f)
#else
#define EK_VECTORS_FIT(p) 1
#endif

/* y = f(x), also in place. */
EK_INLINE void ek_vectors_run(const ek_real *x, ek_real *y, long n) {
    long i = 0;
    for (; i + 2 * EK_VL <= n; i += 2 * EK_VL) {
        const vf a = ek_piecewise_of(vf_load(x + i)), b = ek_piecewise_of(vf_load(x + i + EK_VL));
        vf_store(y + i, a);
        vf_store(y + i + EK_VL, b);
    }
    for (; i + EK_VL <= n; i += EK_VL)
        vf_store(y + i, ek_piecewise_of(vf_load(x + i)));
    if (i < n)
        vf_store_n(y + i, ek_piecewise_of(vf_load_n(x + i, n - i)), n - i);
}
#endif
#endif
