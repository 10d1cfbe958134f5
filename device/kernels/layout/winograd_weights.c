/* Transforms the weights of a convolution for conv/f32_winograd.c: its file then holds 9 values per
 * pair of channels instead of 36.
 *
 * Compile-time parameters: NAME, EK_SIMD, NARROW (bits of a stored weight, see gemm/narrow.h; none:
 * f32). A task is a panel. */
#include "winograd_weights.h"
#ifdef NARROW
#include "../gemm/narrow.h"
#else
typedef float narrow;
EK_INLINE vf narrow_load(const narrow *p) {
    return vf_load(p);
}
#endif

#if defined NARROW && NARROW == 8
#define SCALED 1
#else
#define SCALED 0
#endif

#define SIDE 6
/* Elements transformed before they are copied to the points, which often are a power of two apart:
 * lines of all points at once would evict each other from L1. */
#define BLOCK 64
#define APART (BLOCK + 16)
#define NEAR 0.70710678f
#define FAR 1.41421356f

/* Transforms three values at `from`, `step` vectors apart, to six. The factors are those that the
 * transform of x omits. */
EK_INLINE void transform(const vf *from, const int step, vf to[SIDE]) {
    const vf w0 = from[0], w1 = from[step], w2 = from[2 * step];
    const vf even_near = vf_fma(w2, vf_splat(0.5f), w0) * vf_splat(-2.0f / 3);
    const vf even_far = vf_fma(w2, vf_splat(2), w0) * vf_splat(1.0f / 6);
    to[0] = w0;
    to[1] = vf_fma(w1, vf_splat(NEAR * -2 / 3), even_near);
    to[2] = vf_fma(w1, vf_splat(NEAR * 2 / 3), even_near);
    to[3] = vf_fma(w1, vf_splat(FAR / 6), even_far);
    to[4] = vf_fma(w1, vf_splat(-FAR / 6), even_far);
    to[5] = w2;
}

/* Transforms the vector of weights at `from`, whose taps are `step` elements apart, to `to`. */
EK_INLINE void one_vector(const narrow *from, long step, const float *scale, float *to) {
    vf taps[9], lines[SIDE * 3], made[SIDE];
    EK_UNROLL
    for (int t = 0; t < 9; t++) {
        taps[t] = narrow_load(from + t * step);
        if (scale)
            taps[t] *= vf_load(scale);
    }
    EK_UNROLL
    for (int t = 0; t < 3; t++) {
        transform(taps + t, 3, made);
        EK_UNROLL
        for (int i = 0; i < SIDE; i++)
            lines[i * 3 + t] = made[i];
    }
    EK_UNROLL
    for (int i = 0; i < SIDE; i++) {
        transform(lines + i * 3, 1, made);
        EK_UNROLL
        for (int j = 0; j < SIDE; j++)
            vf_store(to + (i * SIDE + j) * APART, made[j]);
    }
}

void NAME(const void *args, long begin, long end) {
    const ek_winograd_weights_args *a = args;
    float block[SIDE * SIDE * APART] __attribute__((aligned(64)));
    for (long channel = begin * a->nr; channel < ek_min(end * a->nr, a->oc); channel += a->nr) {
        const long row = ek_min(a->nr, a->oc - channel), point = a->c * row;
        const narrow *from = (const narrow *)a->weights + channel * 9 * a->c;
        float *to = a->y + channel * SIDE * SIDE * a->c;
        for (long first = 0; first < point; first += BLOCK) {
            const long count = ek_min(BLOCK, point - first);
            for (long at = 0; at < count; at += EK_VL) {
                const long column = (first + at) % row;
                const float *scale = SCALED ? a->scales + channel + column : NULL;
                one_vector(from + (first + at - column) * 9 + column, row, scale, block + at);
            }
            for (int p = 0; p < SIDE * SIDE; p++)
                for (long at = 0; at < count; at += EK_VL)
                    vf_store(to + p * point + first + at, vf_load(block + p * APART + at));
        }
    }
}
