/* Softmax of f32 (f16 with EK_HALF), computed in f32. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include "softmax.h"
#include "../elementwise/exp_vector.h"

#define PARTS 4 /* independent vectors in flight, to hide latency */
#define STEP (PARTS * EK_VL)
#define RUN 256 /* values summed separately, because adding to a large sum loses low bits */

/* Loads the first n values of a vector and pads with values that contribute nothing. */
EK_INLINE vf load_first(const ek_real *x, long n) {
    ek_real t[EK_VL];
    for (int i = 0; i < EK_VL; i++)
        t[i] = i < n ? x[i] : (ek_real)-INFINITY;
    return vf_load(t);
}

static float largest_of(const ek_real *x, long n) {
    vf part[PARTS];
    ek_real lane[EK_VL], largest = -(ek_real)INFINITY;
    long i = 0;
    for (int p = 0; p < PARTS; p++)
        part[p] = vf_splat(largest);
    for (; i + STEP <= n; i += STEP) {
        EK_UNROLL
        for (int p = 0; p < PARTS; p++)
            part[p] = vf_max(part[p], vf_load(x + i + p * EK_VL));
    }
    for (; i + EK_VL <= n; i += EK_VL)
        part[0] = vf_max(part[0], vf_load(x + i));
    if (i < n)
        part[1] = vf_max(part[1], load_first(x + i, n - i));
    vf_store(lane, vf_max(vf_max(part[0], part[1]), vf_max(part[2], part[3])));
    for (int l = 0; l < EK_VL; l++)
        largest = lane[l] > largest ? lane[l] : largest;
    return largest;
}

/* y: e^(beta * (x - largest)). Returns the sum of n values, at most RUN. */
static float powers_of(const ek_real *x, float largest, float beta, float *y, long n) {
    ek_wide part[PARTS] = {0};
    const ek_wide most = ek_wide_splat(largest), factor = ek_wide_splat(beta);
    float lane[EK_VL], sum = 0.0f;
    long i = 0;
    for (; i + STEP <= n; i += STEP) {
        ek_wide v[PARTS];
        EK_UNROLL
        for (int p = 0; p < PARTS; p++)
            v[p] = (vcast(vf_load(x + i + p * EK_VL), ek_wide) - most) * factor;
        ek_exp_falling(v, PARTS);
        EK_UNROLL
        for (int p = 0; p < PARTS; p++) {
            part[p] += v[p];
            memcpy(y + i + p * EK_VL, &v[p], sizeof v[p]);
        }
    }
    for (; i < n; i += EK_VL) {
        const vf here = n - i < EK_VL ? load_first(x + i, n - i) : vf_load(x + i);
        ek_wide v[1] = {(vcast(here, ek_wide) - most) * factor};
        ek_exp_falling(v, 1);
        part[0] += v[0];
        memcpy(y + i, &v[0], sizeof *y * (size_t)ek_min(n - i, EK_VL));
    }
    const ek_wide all = (part[0] + part[1]) + (part[2] + part[3]);
    memcpy(lane, &all, sizeof all);
    for (int l = 0; l < EK_VL; l++)
        sum += lane[l];
    return sum;
}

#ifdef EK_HALF
#define KEPT 2048 /* powers kept in f32, on the stack */

/* Longer rows compute their powers twice. */
static void row(const ek_real *x, ek_real *y, float beta, long n) {
    const float largest = largest_of(x, n);
    const int keeps = n <= KEPT;
    float power[KEPT], sum = 0.0f;
    for (long i = 0; i < n; i += RUN)
        sum += powers_of(x + i, largest, beta, keeps ? power + i : power, ek_min(RUN, n - i));
    const float share = 1.0f / sum;
    for (long i = 0; i < n; i += RUN) {
        const long part = ek_min(RUN, n - i);
        const float *all = keeps ? power + i : power;
        if (!keeps)
            powers_of(x + i, largest, beta, power, part);
        EK_VECTOR_LOOP
        for (long k = 0; k < part; k++)
            y[i + k] = (ek_real)(all[k] * share);
    }
}
#else
static void row(const float *x, float *y, float beta, long n) {
    const float largest = largest_of(x, n);
    float sum = 0.0f;
    for (long i = 0; i < n; i += RUN)
        sum += powers_of(x + i, largest, beta, y + i, ek_min(RUN, n - i));
    const float share = 1.0f / sum;
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
