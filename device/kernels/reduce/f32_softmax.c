/* Softmax of f32 (f16 with EK_HALF), computed in f32. Compile-time parameters: NAME, EK_SIMD. */
#include "softmax.h"
#include "softmax_row.h"

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
