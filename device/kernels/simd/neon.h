/* 64-bit ARM: 32 registers of 128 bits. */
#ifndef EK_I8
#define EK_I8 EK_I8_MULL16
#endif
#define EK_VL 4
#define EK_FMA 1
#define EK_LANES 1
#define EK_OWN_MULHI
#define EK_OWN_ROUNDING_SHIFT
#define EK_OWN_SHIFT_RIGHT
#define EK_OWN_REQUANTIZE_ONCE
#define EK_QUANTIZED8
#define EK_LINES
#ifdef __aarch64__
#define EK_OPAQUE_INDEX(i) __asm__("" : "+r"(i))
#endif
#include <arm_neon.h>
#include <stdint.h>
typedef int32_t ek_neon_vi __attribute__((vector_size(16)));
static inline __attribute__((always_inline)) ek_neon_vi vi_mulhi(ek_neon_vi a, ek_neon_vi b) {
    return (ek_neon_vi)vqrdmulhq_s32((int32x4_t)a, (int32x4_t)b);
}
/* The instruction rounds half up; subtracting one from negative values rounds half away from
 * zero. */
static inline __attribute__((always_inline, unused)) ek_neon_vi vi_rounding_shift(ek_neon_vi x,
                                                                                  ek_neon_vi n) {
    const int32x4_t right = vnegq_s32((int32x4_t)n), v = (int32x4_t)x;
    const int32x4_t nudge = vshrq_n_s32(vandq_s32(v, right), 31);
    return (ek_neon_vi)vrshlq_s32(vqaddq_s32(v, nudge), right);
}
static inline __attribute__((always_inline, unused)) ek_neon_vi vi_shift_right(ek_neon_vi x,
                                                                               ek_neon_vi n) {
    const int32x4_t v = vsraq_n_s32((int32x4_t)x, (int32x4_t)x, 31);
    return (ek_neon_vi)vrshlq_s32(v, vnegq_s32((int32x4_t)n));
}
/* The shift rounds halves up; subtracting one from negative values rounds half away from zero. */
static inline __attribute__((always_inline, unused)) ek_neon_vi vi_requantize_once(ek_neon_vi x,
                                                                                   ek_neon_vi m,
                                                                                   ek_neon_vi n) {
    const int32x4_t a = (int32x4_t)x, b = (int32x4_t)m, right = vnegq_s32((int32x4_t)n);
    int64x2_t low = vmull_s32(vget_low_s32(a), vget_low_s32(b));
    int64x2_t high = vmull_s32(vget_high_s32(a), vget_high_s32(b));
    low = vrshlq_s64(vsraq_n_s64(low, low, 63), vmovl_s32(vget_low_s32(right)));
    high = vrshlq_s64(vsraq_n_s64(high, high, 63), vmovl_s32(vget_high_s32(right)));
    return (ek_neon_vi)vcombine_s32(vmovn_s64(low), vmovn_s64(high));
}
#ifdef __aarch64__
#define EK_OWN_ROUNDING /* NaN becomes 0 */
typedef float ek_neon_vf __attribute__((vector_size(16)));
static inline __attribute__((always_inline, unused)) ek_neon_vi vi_nearest(ek_neon_vf x) {
    return (ek_neon_vi)vcvtaq_s32_f32((float32x4_t)x);
}
static inline __attribute__((always_inline, unused)) ek_neon_vi vi_nearest_even(ek_neon_vf x) {
    return (ek_neon_vi)vcvtnq_s32_f32((float32x4_t)x);
}
#endif
#include "vector.h"

/* acc + products of the lower (upper) four of eight 16-bit values. */
typedef int16_t ek_neon_vs8 __attribute__((vector_size(16)));
EK_INLINE vi vi_multiply_low(vi acc, ek_neon_vs8 a, ek_neon_vs8 b) {
    return (vi)vmlal_s16((int32x4_t)acc, vget_low_s16((int16x8_t)a), vget_low_s16((int16x8_t)b));
}
EK_INLINE vi vi_multiply_high(vi acc, ek_neon_vs8 a, ek_neon_vs8 b) {
#ifdef __aarch64__
    return (vi)vmlal_high_s16((int32x4_t)acc, (int16x8_t)a, (int16x8_t)b);
#else
    return (vi)vmlal_s16((int32x4_t)acc, vget_high_s16((int16x8_t)a), vget_high_s16((int16x8_t)b));
#endif
}

/* Eight quantized values: value + zero clamped to [low, high], bounds of s8 or u8. Intermediate
 * saturation is harmless because it exceeds the bounds. */
typedef struct {
    int16x8_t zero;
    uint8x8_t low, high;
} vi_range;
EK_INLINE vi_range vi_range_of(int zero, int low, int high) {
    return (vi_range){vdupq_n_s16((int16_t)zero), vdup_n_u8((uint8_t)low),
                      vdup_n_u8((uint8_t)high)};
}
EK_INLINE int64_t vi_quantized8(vi a, vi b, const vi_range *c, const int is_unsigned) {
    const int16x8_t v = vcombine_s16(vqmovn_s32((int32x4_t)a), vqmovn_s32((int32x4_t)b));
    const int16x8_t moved = vqaddq_s16(v, c->zero);
    if (is_unsigned)
        return (int64_t)vmin_u8(vmax_u8(vqmovun_s16(moved), c->low), c->high);
    const int8x8_t least = vmax_s8(vqmovn_s16(moved), (int8x8_t)c->low);
    return (int64_t)vmin_s8(least, (int8x8_t)c->high);
}
/* The same if values plus `zero` fit 16 bits, and the bounds are those of the type. */
EK_INLINE int64_t vi_short_quantized8(vi a, vi b, const vi_range *c, const int is_unsigned) {
    const int16x8_t v = vcombine_s16(vmovn_s32((int32x4_t)a), vmovn_s32((int32x4_t)b));
    const int16x8_t moved = vaddq_s16(v, c->zero);
    return is_unsigned ? (int64_t)vqmovun_s16(moved) : (int64_t)vqmovn_s16(moved);
}

/* Linear map of sums given as bits of floats from 2^23 to 2^24, to floats in that range: their low
 * bits are the rounded result. EK_LINE_ZERO is the bit pattern of zero. */
EK_INLINE vi vi_line(vi sum, vf slope, vf offset) {
    return (vi)vfmaq_f32((float32x4_t)offset, (float32x4_t)sum, (float32x4_t)slope);
}
#define EK_LINE_ZERO 0x4B400000
/* s8 or u8 values from the low 16 bits. */
EK_INLINE int64_t vi_low_quantized8(vi a, vi b, const int is_unsigned) {
    const int16x8_t v = vuzpq_s16((int16x8_t)a, (int16x8_t)b).val[0];
    return is_unsigned ? (int64_t)vqmovun_s16(v) : (int64_t)vqmovn_s16(v);
}

/* Sixteen byte products in four lanes. `narrow` adds two products in 16 bits before widening, which
 * is exact unless both factors of both products can be -128. */
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

/* The same for the lower eight of sixteen bytes. */
EK_INLINE vi vi_mull8(vi acc, vi a, vi b) {
    const int8x16_t x = (int8x16_t)a, y = (int8x16_t)b;
    const int16x8_t products = vmull_s8(vget_low_s8(x), vget_low_s8(y));
    return (vi)vpadalq_s16((int32x4_t)acc, products);
}

/* Sixteen bytes from byte `first` on, followed by zeros; 0 <= first < 16. */
EK_INLINE vi vi_bytes_from(vi v, long first) {
    const uint8x16_t places = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint8x16_t at = vaddq_u8(places, vdupq_n_u8((uint8_t)first));
#ifdef __aarch64__
    return (vi)vqtbl1q_u8((uint8x16_t)v, at);
#else
    const uint8x8x2_t bytes = {{vget_low_u8((uint8x16_t)v), vget_high_u8((uint8x16_t)v)}};
    return (vi)vcombine_u8(vtbl2_u8(bytes, vget_low_u8(at)), vtbl2_u8(bytes, vget_high_u8(at)));
#endif
}

/* 16-bit sums: the lower or upper half of sixteen byte products; and widening such sums to four
 * 32-bit ones. */
typedef int16_t vi_short __attribute__((vector_size(16)));
EK_INLINE vi_short vi_mlal8(vi_short acc, vi a, vi b, const int high) {
    const int8x16_t x = (int8x16_t)a, y = (int8x16_t)b;
    return (vi_short)(high ? vmlal_s8((int16x8_t)acc, vget_high_s8(x), vget_high_s8(y))
                           : vmlal_s8((int16x8_t)acc, vget_low_s8(x), vget_low_s8(y)));
}
EK_INLINE vi vi_of_short(vi_short sums) {
    return (vi)vpaddlq_s16((int16x8_t)sums);
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
