/* Weights of f32 products stored in fewer bits, which widen to the same f32 values exactly.
 *
 * NARROW: bits of a stored weight. 16: f16. 8: s8, times a scale per channel. Infinities and NaN
 * are never stored. */
#ifndef EK_GEMM_NARROW_H
#define EK_GEMM_NARROW_H
#include "../kernel.h"

#if NARROW == 16
typedef uint16_t narrow;

/* One vector of weights. */
EK_INLINE vf narrow_load(const narrow *p) {
#if defined __aarch64__ || defined __riscv_zvfh || defined __F16C__
#if EK_VL > 1
    typedef _Float16 halves __attribute__((vector_size(2 * EK_VL)));
#else
    typedef _Float16 halves;
#endif
    halves v;
    memcpy(&v, p, sizeof v);
    return vcast(v, vf);
#elif defined __arm__ && EK_VL == 4
    float16x4_t v; /* arithmetic would flush subnormal halves to zero */
    memcpy(&v, p, sizeof v);
    return (vf)vcvt_f32_f16(v);
#else
    /* The exponent is 112 too low, which multiplying corrects exactly, for subnormals too. */
    const vi bits = vi_from_s16((const int16_t *)p) << 13 & (int32_t)0x8fffe000;
    vf v;
    memcpy(&v, &bits, sizeof v);
    return v * 0x1p112f;
#endif
}
#else
typedef int8_t narrow;

EK_INLINE vf narrow_load(const narrow *p) {
    return vcast(vi_from_s8(p), vf);
}
#endif

/* Scales from channel `at` on; f16 weights have none. */
EK_INLINE const float *narrow_scales(const float *scales, long at) {
    return NARROW == 8 ? scales + at : NULL;
}

#define NARROW_AHEAD (512 / (int)sizeof(narrow))

/* Widens `depth` rows of `vectors` vectors; `scales` are those of the channels (s8 only). Loads
 * come first, so that in-order cores do not wait for each. */
EK_INLINE void narrow_widen(const int vectors, const narrow *restrict from, long depth,
                            const float *restrict scales, float *restrict to) {
    (void)scales;
#if NARROW == 16
    const long count = vectors * depth;
    long i = 0;
    for (; i + 4 <= count; i += 4, from += 4 * EK_VL, to += 4 * EK_VL) {
        vf v[4];
        __builtin_prefetch(from + NARROW_AHEAD);
        EK_UNROLL
        for (int j = 0; j < 4; j++)
            v[j] = narrow_load(from + j * EK_VL);
        EK_UNROLL
        for (int j = 0; j < 4; j++)
            vf_store(to + j * EK_VL, v[j]);
    }
    for (; i < count; i++, from += EK_VL, to += EK_VL)
        vf_store(to, narrow_load(from));
#else
    const long row = vectors * EK_VL;
    long p = 0;
    for (; p + 4 <= depth; p += 4, from += 4 * row, to += 4 * row) {
        __builtin_prefetch(from + NARROW_AHEAD);
        for (int j = 0; j < vectors; j++) {
            const vf scale = vf_load(scales + j * EK_VL);
            vf v[4];
            EK_UNROLL
            for (int i = 0; i < 4; i++)
                v[i] = narrow_load(from + i * row + j * EK_VL) * scale;
            EK_UNROLL
            for (int i = 0; i < 4; i++)
                vf_store(to + i * row + j * EK_VL, v[i]);
        }
    }
    for (; p < depth; p++, from += row, to += row)
        for (int j = 0; j < vectors; j++)
            vf_store(to + j * EK_VL, narrow_load(from + j * EK_VL) * vf_load(scales + j * EK_VL));
#endif
}
#endif
