/* Loads activations as float vectors, and accesses floats as bits. */
#ifndef EK_OUTLIER_FLOATS_H
#define EK_OUTLIER_FLOATS_H
#include "../kernel.h"
#include "parts.h"

EK_INLINE vi vf_bits(vf v) {
    vi b;
    memcpy(&b, &v, sizeof b);
    return b;
}
EK_INLINE vf vf_of_bits(vi b) {
    vf v;
    memcpy(&v, &b, sizeof v);
    return v;
}

#if EK_VL > 1
typedef uint16_t vh __attribute__((vector_size(2 * EK_VL)));
#else
typedef uint16_t vh;
#endif

/* After shifting, a half's exponent is too small by 112; scaling fixes this exactly, even for
 * subnormals. The largest exponent becomes that of infinity and NaN. */
EK_INLINE vf vf_from_half(const uint16_t *p) {
#if defined __arm__ && EK_VL == 4
    float16x4_t v; /* arithmetic would flush subnormal halves to zero */
    memcpy(&v, p, sizeof v);
    return (vf)vcvt_f32_f16(v);
#else
    vh h;
    memcpy(&h, p, sizeof h);
    const vi w = vcast(h, vi), magnitude = (w & 0x7fff) << 13;
    const vi special = EK_MASK(magnitude >= 0x0f800000) & 0x7f800000;
    const vi bits = vf_bits(vf_of_bits(magnitude) * 0x1p112f);
    return vf_of_bits(bits | special | (vi)((vu)(w & 0x8000) << 16));
#endif
}

/* Loads EK_VL values of a row starting at `at`; or only the first n, zero-padded. */
EK_INLINE vf x_load(const void *row, long at, const int half) {
    return half ? vf_from_half((const uint16_t *)row + at) : vf_load((const float *)row + at);
}
EK_INLINE vf x_load_n(const void *row, long at, long n, const int half) {
    if (!half)
        return vf_load_n((const float *)row + at, n);
    uint16_t t[EK_VL] = {0};
    memcpy(t, (const uint16_t *)row + at, (size_t)n * sizeof *t);
    return vf_from_half(t);
}

/* Prefetches the line of value `at`, which may be beyond the row. Measured on x86 only. */
EK_INLINE void x_prefetch(const void *row, long at, const int half) {
#ifdef __x86_64__
    __builtin_prefetch((const char *)row + at * (half ? 2 : 4));
#else
    (void)row, (void)at, (void)half;
#endif
}

EK_INLINE const void *x_row(const ek_outlier_args *g, long row) {
    return (const char *)g->x + row * g->x_row * (g->half ? 2 : 4);
}

/* One value. */
static inline float x_value(const void *row, long at, int half) {
    if (!half)
        return ((const float *)row)[at];
    const uint32_t h = ((const uint16_t *)row)[at], magnitude = (h & 0x7fff) << 13;
    float v;
    memcpy(&v, &magnitude, sizeof v);
    v *= 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits |= (magnitude >= 0x0f800000 ? 0x7f800000 : 0) | (h & 0x8000) << 16;
    memcpy(&v, &bits, sizeof v);
    return v;
}

EK_INLINE vi magnitude_of(vf v) {
    return vf_bits(v) & 0x7fffffff;
}
EK_INLINE int32_t largest_lane(vi v) {
#if EK_VL > 1
    return __builtin_reduce_max(v);
#else
    return v;
#endif
}
#endif
