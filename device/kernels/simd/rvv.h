/* RVV 1.0, for the headers that set EK_VL. A vector is a register of the minimum length that the
 * code is compiled for (zvl256b, zvl512b), or a pair if that is half of it; longer registers run
 * the same code and leave the excess unused. */
#define EK_FMA 1
#define EK_LANES 0
#ifndef EK_I8
#define EK_I8 EK_I8_WIDE16
#endif
#if defined __riscv_vector && __has_builtin(__builtin_masked_load)
#define EK_OWN_PARTIAL
#define EK_OWN_PARTIAL_BYTES
#define EK_OWN_PARTIAL_SHORTS
#endif
#define EK_OWN_NEAREST
#include "vector.h"

#ifndef EK_HALF
/* QEMU 7.2 may abort on RVV's truncating conversions. Adding 1.5 * 2^23 leaves no bits for a
 * fraction, so that the integer is in the sum's low bits. */
EK_INLINE vi vi_from_integral(vf x) {
    const vf shift = vf_splat(12582912.0f);
    return (vi)(x + shift) - (vi)shift;
}
EK_INLINE vi vi_nearest(vf x) {
    const vf shift = vf_splat(12582912.0f), zero = vf_splat(0.0f);
    const vf even = (x + shift) - shift, rest = x - even;
    const vi up = (rest >= 0.5f) & (x > zero), down = (rest <= -0.5f) & (x < zero);
    return (vi)(x + shift) - (vi)shift - up + down;
}
#endif

#ifdef EK_OWN_PARTIAL
/* Partial vectors, by lane masks. A vsetvl length would do, but Clang 22 can pass fixed-size
 * vectors to the intrinsics that take one only in code for a single register length. Also, a mask
 * is computed once if the number of lanes is constant. Lane indices have the width of the data, so
 * vtype is constant too. */
#if EK_VL == 8
#define EK_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#elif EK_VL == 16
#define EK_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#else
#define EK_LANE_NUMBERS                                                                            \
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,  \
        26, 27, 28, 29, 30, 31
#endif
typedef _Bool ek_first __attribute__((ext_vector_type(EK_VL)));

/* load, store: the first n lanes (0 < n < EK_VL) of `vector`, whose lanes are `element`s as wide as
 * `number`s; lanes not loaded are zero. */
#define EK_PARTIAL(load, store, vector, element, number)                                           \
    typedef element load##_lanes __attribute__((ext_vector_type(EK_VL)));                          \
    typedef number load##_numbers __attribute__((ext_vector_type(EK_VL)));                         \
    EK_INLINE ek_first load##_first(long n) {                                                      \
        const load##_numbers lane = {EK_LANE_NUMBERS};                                             \
        return __builtin_convertvector(lane < (number)n, ek_first);                                \
    }                                                                                              \
    EK_INLINE vector load(const element *p, long n) {                                              \
        return (vector)__builtin_masked_load(load##_first(n), p, (load##_lanes)(0));               \
    }                                                                                              \
    EK_INLINE void store(element *p, vector v, long n) {                                           \
        __builtin_masked_store(load##_first(n), (load##_lanes)v, p);                               \
    }
#ifdef EK_HALF
EK_PARTIAL(vf_load_n, vf_store_n, vf, ek_real, uint16_t)
#else
EK_PARTIAL(vf_load_n, vf_store_n, vf, ek_real, uint32_t)
#endif
EK_PARTIAL(vi_load_n, vi_store_n, vi, int32_t, uint32_t)
EK_PARTIAL(ek_s16_load_n, ek_s16_store_n, vs, int16_t, uint16_t)
EK_PARTIAL(ek_s8_load_n, ek_s8_store_n, vb, int8_t, uint8_t)

EK_INLINE vi vi_from_s8_n(const int8_t *p, long n) {
    return vcast(vcast(ek_s8_load_n(p, n), vs), vi);
}
EK_INLINE vi vi_from_u8_n(const uint8_t *p, long n) {
    return vcast(vcast((vub)ek_s8_load_n((const int8_t *)p, n), vs), vi);
}
EK_INLINE void vi_to_bytes_n(void *p, vi v, long n) {
    ek_s8_store_n((int8_t *)p, vcast(v, vb), n);
}
EK_INLINE vi vi_from_s16_n(const int16_t *p, long n) {
    return vcast(ek_s16_load_n(p, n), vi);
}
EK_INLINE void vi_to_s16_n(int16_t *p, vi v, long n) {
    ek_s16_store_n(p, vcast(v, vs), n);
}
#endif
