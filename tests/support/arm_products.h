/* The 8-bit products of ARM's vectors in plain C, so that sanitizers for x86 can build the kernels
 * that use them. Before inclusion: EK_I8, EK_I8_MULL16 or EK_I8_DOT4_SS. */
#define EK_VL 4
#define EK_FMA 1
#define EK_LANES 1
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
