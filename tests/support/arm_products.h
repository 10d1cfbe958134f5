/* The 8-bit products of ARM's vectors in plain C, so that sanitizers for x86 can build the kernels
 * that use them. Before inclusion: EK_I8, EK_I8_MULL16 or EK_I8_DOT4_SS. */
#define EK_VL 4
#define EK_FMA 1
#define EK_LANES 1
#define EK_QUANTIZED8
#define EK_LINES
#include "simd/vector.h"

typedef int8_t arm_bytes __attribute__((vector_size(16)));
typedef int16_t vi_short __attribute__((vector_size(16)));

EK_INLINE vi vi_dot4(vi acc, vi a, vi b) {
    const arm_bytes x = (arm_bytes)a, y = (arm_bytes)b;
    for (int i = 0; i < 16; i++)
        acc[i / 4] += x[i] * y[i];
    return acc;
}
EK_INLINE vi vi_mull16(vi acc, vi a, vi b, const int narrow) {
    const arm_bytes x = (arm_bytes)a, y = (arm_bytes)b;
    (void)narrow;
    for (int i = 0; i < 16; i++)
        acc[i % 8 / 2] += x[i] * y[i];
    return acc;
}
EK_INLINE vi vi_mull8(vi acc, vi a, vi b) {
    const arm_bytes x = (arm_bytes)a, y = (arm_bytes)b;
    for (int i = 0; i < 8; i++)
        acc[i / 2] += x[i] * y[i];
    return acc;
}
/* Sums that leave 16 bits wrap around, and the result is wrong. */
EK_INLINE vi_short vi_mlal8(vi_short acc, vi a, vi b, const int high) {
    const arm_bytes x = (arm_bytes)a, y = (arm_bytes)b;
    for (int i = 0; i < 8; i++)
        acc[i] = (int16_t)(acc[i] + x[8 * high + i] * y[8 * high + i]);
    return acc;
}
EK_INLINE vi vi_of_short(vi_short sums) {
    return (vi){sums[0] + sums[1], sums[2] + sums[3], sums[4] + sums[5], sums[6] + sums[7]};
}
EK_INLINE vi vi_sum4(vi a, vi b, vi c, vi d) {
    return (vi){__builtin_reduce_add(a), __builtin_reduce_add(b), __builtin_reduce_add(c),
                __builtin_reduce_add(d)};
}

/* Outputs as in simd/neon.h. */
typedef struct {
    int zero, low, high;
} vi_range;
EK_INLINE vi_range vi_range_of(int zero, int low, int high) {
    return (vi_range){zero, low, high};
}
EK_INLINE int64_t vi_quantized8(vi a, vi b, const vi_range *c, const int is_unsigned) {
    int8_t made[8];
    (void)is_unsigned;
    for (int i = 0; i < 8; i++) {
        const int64_t moved = (int64_t)(i < 4 ? a[i] : b[i - 4]) + c->zero;
        made[i] = (int8_t)(moved < c->low ? c->low : moved > c->high ? c->high : moved);
    }
    int64_t all;
    memcpy(&all, made, sizeof all);
    return all;
}
EK_INLINE int64_t vi_short_quantized8(vi a, vi b, const vi_range *c, const int is_unsigned) {
    return vi_quantized8(a, b, c, is_unsigned);
}
EK_INLINE vi vi_line(vi sum, vf slope, vf offset) {
    return (vi)vf_fma((vf)sum, slope, offset);
}
#define EK_LINE_ZERO 0x4B400000
EK_INLINE int64_t vi_low_quantized8(vi a, vi b, const int is_unsigned) {
    const vi_range whole = {0, is_unsigned ? 0 : -128, is_unsigned ? 255 : 127};
    return vi_quantized8(a << 16 >> 16, b << 16 >> 16, &whole, is_unsigned);
}
