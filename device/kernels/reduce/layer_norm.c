/* y = (x - mean) / sqrt(variance + epsilon) * factor + shift, f32 (f16 with EK_HALF, computed in
 * f32). Compile-time parameters: NAME, EK_SIMD, and with EK_HALF WIDE_TERMS if factor and shift are
 * f32. */
#include "layer_norm.h"
#include <math.h>

/* Independent vectors, to hide latency: two of f16 are four of f32. */
#ifdef EK_HALF
#define STEP 2
#else
#define STEP 4
#endif

typedef ek_real elem;
#ifdef EK_HALF
typedef float wide __attribute__((vector_size(4 * EK_VL)));
#else
typedef vf wide;
#endif
#ifdef WIDE_TERMS
typedef float term;
#else
typedef elem term;
#endif

EK_INLINE wide load(const elem *p) {
    return vcast(vf_load(p), wide);
}

EK_INLINE wide load_term(const term *p) {
#ifdef WIDE_TERMS
    wide v;
    memcpy(&v, p, sizeof v);
    return v;
#else
    return load(p);
#endif
}

EK_INLINE wide splat(float x) {
    return x - (wide){0};
}

EK_INLINE float lanes(wide v) {
    float lane[EK_VL], sum = 0;
    memcpy(lane, &v, sizeof v);
    for (int l = 0; l < EK_VL; l++)
        sum += lane[l];
    return sum;
}

typedef struct {
    float mean, variance;
} moments_t;

/* Values are taken relative to the first one, so that rounding errors are relative to its distance
 * from the mean. */
#ifdef EK_HALF
/* In one pass: the square of the distance, which is subtracted, is less than n variances, because
 * the first value is one of them, and f32 has more digits than values of f16 need. */
EK_INLINE moments_t moments_of(const elem *x, long n) {
    const float first = (float)x[0];
    const wide center = splat(first);
    wide sums[STEP] = {0}, squares[STEP] = {0};
    long i = 0;
    for (; i + STEP * EK_VL <= n; i += STEP * EK_VL) {
        EK_UNROLL
        for (int p = 0; p < STEP; p++) {
            const wide v = load(x + i + p * EK_VL) - center;
            sums[p] += v;
            squares[p] += v * v;
        }
    }
    for (; i + EK_VL <= n; i += EK_VL) {
        const wide v = load(x + i) - center;
        sums[0] += v;
        squares[0] += v * v;
    }
    float sum = lanes(sums[0] + sums[1]), square = lanes(squares[0] + squares[1]);
    for (; i < n; i++) {
        const float v = (float)x[i] - first;
        sum += v;
        square += v * v;
    }
    const float share = 1.0f / (float)n, off = sum * share, variance = square * share - off * off;
    return (moments_t){first + off, variance < 0 ? 0 : variance};
}
#else
/* The sum of x - c, or of its squares. */
EK_INLINE float sum_of(const elem *x, long n, float c, const int squares) {
    wide parts[STEP] = {0};
    const wide center = splat(c);
    long i = 0;
    for (; i + STEP * EK_VL <= n; i += STEP * EK_VL) {
        EK_UNROLL
        for (int p = 0; p < STEP; p++) {
            const wide v = load(x + i + p * EK_VL) - center;
            parts[p] += squares ? v * v : v;
        }
    }
    for (; i + EK_VL <= n; i += EK_VL) {
        const wide v = load(x + i) - center;
        parts[0] += squares ? v * v : v;
    }
    float sum = lanes((parts[0] + parts[1]) + (parts[2] + parts[3]));
    for (; i < n; i++) {
        const float v = x[i] - c;
        sum += squares ? v * v : v;
    }
    return sum;
}

EK_INLINE moments_t moments_of(const elem *x, long n) {
    const float mean = x[0] + sum_of(x, n, x[0], 0) / (float)n;
    return (moments_t){mean, sum_of(x, n, mean, 1) / (float)n};
}
#endif

EK_INLINE void normalize(const int count, const elem *x, wide center, wide scale,
                         const term *factor, const term *shift, elem *y) {
    wide v[STEP];
    EK_UNROLL
    for (int p = 0; p < count; p++)
        v[p] = (load(x + p * EK_VL) - center) * scale;
    EK_UNROLL
    for (int p = 0; p < count; p++)
        v[p] = v[p] * load_term(factor + p * EK_VL) + load_term(shift + p * EK_VL);
    EK_UNROLL
    for (int p = 0; p < count; p++)
        vf_store(y + p * EK_VL, vcast(v[p], vf));
}

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_layer_norm_args *a = args;
    const long n = a->n;
    for (long t = begin; t < end; t++) {
        const elem *x = (const elem *)a->x + t * n;
        const term *factor = a->factor, *shift = a->shift;
        elem *y = (elem *)a->y + t * n;
        const moments_t m = moments_of(x, n);
        const float inverse = 1.0f / sqrtf(m.variance + a->epsilon);
        const wide center = splat(m.mean), scale = splat(inverse);
        long i = 0;
        for (; i + STEP * EK_VL <= n; i += STEP * EK_VL)
            normalize(STEP, x + i, center, scale, factor + i, shift + i, y + i);
        for (; i + EK_VL <= n; i += EK_VL)
            normalize(1, x + i, center, scale, factor + i, shift + i, y + i);
        for (; i < n; i++)
            y[i] = (elem)(((float)x[i] - m.mean) * inverse * (float)factor[i] + (float)shift[i]);
    }
}
