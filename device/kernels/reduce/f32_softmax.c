/* Softmax of f32 (f16 with EK_HALF), computed in f32. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include "softmax.h"
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

static float largest_of(const ek_real *x, long n) {
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

static scale_t scale_of(float largest, float beta) {
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

/* y: the powers. Returns the sum of n values. */
static double powers_of(const ek_real *x, const scale_t *scale, float *y, long n) {
    const scale_t s = *scale; /* a copy, because stores to y might alias it */
    ek_wide total[2] = {0};
    float lane[EK_VL];
    double sum = 0.0;
    long i = 0;
    for (; i + STEP <= n; i += STEP) {
        ek_wide v[PARTS];
        EK_UNROLL
        for (int p = 0; p < PARTS; p++)
            v[p] = widened(vf_load(x + i + p * EK_VL), &s);
        ek_powers(v, s.each, s.shift, PARTS);
        add(total, (v[0] + v[1]) + (v[2] + v[3]));
        EK_UNROLL
        for (int p = 0; p < PARTS; p++)
            memcpy(y + i + p * EK_VL, &v[p], sizeof v[p]);
    }
    for (; i < n; i += EK_VL) {
        ek_wide v[1] = {widened(n - i < EK_VL ? load_first(x + i, n - i) : vf_load(x + i), &s)};
        ek_powers(v, s.each, s.shift, 1);
        add(total, v[0]);
        memcpy(y + i, &v[0], sizeof *y * (size_t)ek_min(n - i, EK_VL));
    }
    total[0] += total[1];
    memcpy(lane, &total[0], sizeof total[0]);
    for (int l = 0; l < EK_VL; l++)
        sum += (double)lane[l];
    return sum;
}

#ifdef EK_HALF
#define KEPT 2048 /* powers kept in f32, on the stack */

/* Longer rows compute their powers twice. */
static void row(const ek_real *x, ek_real *y, float beta, long n) {
    const scale_t scale = scale_of(largest_of(x, n), beta);
    float power[KEPT];
    double sum = 0.0;
    for (long i = 0; i < n; i += KEPT)
        sum += powers_of(x + i, &scale, power, ek_min(KEPT, n - i));
    const float share = (float)(1.0 / sum);
    for (long i = 0; i < n; i += KEPT) {
        const long part = ek_min(KEPT, n - i);
        if (n > KEPT)
            powers_of(x + i, &scale, power, part);
        EK_VECTOR_LOOP
        for (long k = 0; k < part; k++)
            y[i + k] = (ek_real)(power[k] * share);
    }
}
#else
static void row(const float *x, float *y, float beta, long n) {
    const scale_t scale = scale_of(largest_of(x, n), beta);
    const float share = (float)(1.0 / powers_of(x, &scale, y, n));
    EK_VECTOR_LOOP
    for (long i = 0; i < n; i++)
        y[i] = y[i] * share;
}
#endif

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_softmax_args *a = args;
    for (long t = begin; t < end; t++) {
        const ek_real *x = (const ek_real *)a->x + t * a->n;
        row(x, (ek_real *)a->y + t * a->n, a->beta, a->n);
    }
}
