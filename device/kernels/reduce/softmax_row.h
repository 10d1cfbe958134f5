/* Parts of the softmax of one row of ek_real, computed in f32. */
#ifndef EK_SOFTMAX_ROW_H
#define EK_SOFTMAX_ROW_H
#include <math.h>
#include "../elementwise/exp_vector.h"

#define PARTS 4 /* independent vectors in flight, to hide latency */
#define STEP (PARTS * EK_VL)
#if defined __x86_64__ && !defined __FMA__
#define FUSED 0 /* products are rounded before they are added to */
#else
#define FUSED 1
#endif

/* Loads the first n values of a vector and pads with values that contribute nothing. */
EK_INLINE vf load_first(const ek_real *x, long n) {
    ek_real t[EK_VL];
    for (int i = 0; i < EK_VL; i++)
        t[i] = i < n ? x[i] : (ek_real)-INFINITY;
    return vf_load(t);
}

EK_INLINE float largest_of(const ek_real *x, long n) {
    vf part[PARTS];
    long i = 0;
    for (int p = 0; p < PARTS; p++)
        part[p] = vf_splat(-(ek_real)INFINITY);
    for (; i + STEP <= n; i += STEP) {
        EK_UNROLL
        for (int p = 0; p < PARTS; p++)
            part[p] = vf_max(part[p], vf_load(x + i + p * EK_VL));
    }
    for (; i + EK_VL <= n; i += EK_VL)
        part[0] = vf_max(part[0], vf_load(x + i));
    if (i < n)
        part[1] = vf_max(part[1], load_first(x + i, n - i));
    const vf most = vf_max(vf_max(part[0], part[1]), vf_max(part[2], part[3]));
#if EK_VL > 1
    return __builtin_reduce_max(most);
#else
    return most;
#endif
}

/* The powers of a row are e^(beta x), whose exponents are exact, times a power of 2 with which the
 * largest is from 2^63 to 2^65: none is too small for a normal number, and sums are not too large.
 * `base` is subtracted first if beta x is large, where that is exact, or rounded. */
typedef struct {
    float each[2], shift;
#ifndef EK_HALF
    float base;
#endif
    ek_real least; /* powers of smaller values would be negligible */
} scale_t;

EK_INLINE scale_t scale_of(float largest, float beta) {
    scale_t s = {.each = {beta * EK_LOG2E, beta * EK_LOG2E_REST}};
#ifndef EK_HALF
    s.base = FUSED && fabsf(largest * s.each[0]) < 0x1p20f ? 0.0f : largest;
    largest -= s.base;
    s.least = largest - 110.0f / beta;
#else
    const float least = largest - 80.0f / beta;
    s.least = (ek_real)(least < -65504.0f ? -65504.0f : least);
#endif
    const float most = (largest * s.each[0] + EK_SHIFT) - EK_SHIFT;
    s.shift = EK_SHIFT + 64.0f - most;
    return s;
}

EK_INLINE ek_wide widened(vf x, const scale_t *s) {
#ifndef EK_HALF
    x -= s->base;
#endif
#ifdef __aarch64__
    x = __builtin_elementwise_maximum(x, vf_splat(s->least));
#elif EK_VL == 1
    x = EK_AT_LEAST(x, s->least);
#else
    x = vf_where(EK_MASK(x < vf_splat(s->least)), vf_splat(s->least), x);
#endif
    return vcast(x, ek_wide);
}

/* total[0] += v; with total[1], the sum of what rounding loses. */
EK_INLINE void add(ek_wide total[2], ek_wide v) {
    const ek_wide sum = total[0] + v;
#ifndef EK_HALF
    const ek_wide added = sum - total[0];
    total[1] += (total[0] - (sum - added)) + (v - added);
#endif
    total[0] = sum;
}
#endif
