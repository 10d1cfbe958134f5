/* Means of `values`, weighted by the softmax of rows of f32 (f16 with EK_HALF), computed in f32.
 * Compile-time parameters: NAME, EK_SIMD. */
#include "softmax_row.h"

typedef struct {
    long n;
    const void *x;
    const float *values; /* padded with zeros to a complete vector */
    void *y;
    float beta;
} ek_softmax_mean_args;

/* Adds the powers of `count` vectors, and their products with the values. */
EK_INLINE void add_powers(ek_wide *v, const scale_t *s, const float *values, ek_wide *total,
                          ek_wide *weighted, const int count) {
    ek_powers(v, s->each, s->shift, count);
    EK_UNROLL
    for (int p = 0; p < count; p++) {
        ek_wide value;
        memcpy(&value, values + p * EK_VL, sizeof value);
        *total += v[p];
        *weighted += v[p] * value;
    }
}

EK_INLINE float sum_of(ek_wide v) {
    float lane[EK_VL], sum = 0.0f;
    memcpy(lane, &v, sizeof v);
    for (int l = 0; l < EK_VL; l++)
        sum += lane[l];
    return sum;
}

static float mean_of(const ek_real *x, const float *values, float beta, long n) {
    const scale_t s = scale_of(largest_of(x, n), beta);
    ek_wide total = {0}, weighted = {0};
    long i = 0;
    for (; i + STEP <= n; i += STEP) {
        ek_wide v[PARTS];
        EK_UNROLL
        for (int p = 0; p < PARTS; p++)
            v[p] = widened(vf_load(x + i + p * EK_VL), &s);
        add_powers(v, &s, values + i, &total, &weighted, PARTS);
    }
    for (; i < n; i += EK_VL) {
        ek_wide v[1] = {widened(n - i < EK_VL ? load_first(x + i, n - i) : vf_load(x + i), &s)};
        add_powers(v, &s, values + i, &total, &weighted, 1);
    }
    return sum_of(weighted) / sum_of(total);
}

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_softmax_mean_args *a = args;
    for (long t = begin; t < end; t++)
        ((ek_real *)a->y)[t] =
            (ek_real)mean_of((const ek_real *)a->x + t * a->n, a->values, a->beta, a->n);
}
