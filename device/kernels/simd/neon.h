/* 64-bit ARM: 32 registers of 128 bits. */
#ifndef EK_I8
#define EK_I8 EK_I8_MULL16
#endif
#define EK_VL 4
#define EK_FMA 1
#define EK_LANES 1
#define EK_OWN_MULHI
#define EK_OWN_ROUNDING_SHIFT
#include <arm_neon.h>
#include <stdint.h>
typedef int32_t ek_neon_vi __attribute__((vector_size(16)));
static inline __attribute__((always_inline)) ek_neon_vi vi_mulhi(ek_neon_vi a, ek_neon_vi b) {
    return (ek_neon_vi)vqrdmulhq_s32((int32x4_t)a, (int32x4_t)b);
}
/* The instruction rounds halves up: one less makes those below zero go away from it. */
static inline __attribute__((always_inline, unused)) ek_neon_vi vi_rounding_shift(ek_neon_vi x,
                                                                                  ek_neon_vi n) {
    const int32x4_t right = vnegq_s32((int32x4_t)n), v = (int32x4_t)x;
    const int32x4_t nudge = vshrq_n_s32(vandq_s32(v, right), 31);
    return (ek_neon_vi)vrshlq_s32(vqaddq_s32(v, nudge), right);
}
#include "vector.h"

/* Sixteen products of bytes in four lanes. `narrow` adds two products in 16 bits before widening,
 * which is exact unless both factors of both can be -128. */
EK_INLINE vi vi_mull16(vi acc, vi a, vi b, const int narrow) {
    const int8x16_t x = (int8x16_t)a, y = (int8x16_t)b;
    int16x8_t pairs = vmull_s8(vget_low_s8(x), vget_low_s8(y));
    if (!narrow) {
        acc = (vi)vpadalq_s16((int32x4_t)acc, pairs);
    }
#ifdef __aarch64__
    pairs = narrow ? vmlal_high_s8(pairs, x, y) : vmull_high_s8(x, y);
#else
    const int8x8_t high = vget_high_s8(x), high_y = vget_high_s8(y);
    pairs = narrow ? vmlal_s8(pairs, high, high_y) : vmull_s8(high, high_y);
#endif
    return (vi)vpadalq_s16((int32x4_t)acc, pairs);
}

/* Lane l: the sum of the lanes of the l-th vector. */
EK_INLINE vi vi_sum4(vi a, vi b, vi c, vi d) {
#ifdef __aarch64__
    const int32x4_t ab = vpaddq_s32((int32x4_t)a, (int32x4_t)b);
    return (vi)vpaddq_s32(ab, vpaddq_s32((int32x4_t)c, (int32x4_t)d));
#else
    const int32x4_t v[4] = {(int32x4_t)a, (int32x4_t)b, (int32x4_t)c, (int32x4_t)d};
    int32x2_t half[4];
    for (int i = 0; i < 4; i++)
        half[i] = vadd_s32(vget_low_s32(v[i]), vget_high_s32(v[i]));
    return (vi)vcombine_s32(vpadd_s32(half[0], half[1]), vpadd_s32(half[2], half[3]));
#endif
}
