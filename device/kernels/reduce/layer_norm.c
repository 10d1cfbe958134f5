/* y = (x - mean) / sqrt(variance + epsilon) * factor + shift, f32 (f16 with EK_HALF, computed in
 * f32). Compile-time parameters: NAME, EK_SIMD. */
#include "layer_norm.h"
#include <math.h>

#define PARTS 4 /* independent accumulators, to hide latency */

typedef ek_real elem;
#ifdef EK_HALF
typedef float wide __attribute__((vector_size(4 * EK_VL)));
#else
typedef vf wide;
#endif

EK_INLINE wide load(const elem *p) {
    return vcast(vf_load(p), wide);
}

EK_INLINE wide splat(float x) {
    return x - (wide){0};
}

EK_INLINE float lanes(const wide parts[PARTS]) {
    const wide all = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    float lane[EK_VL], sum = 0;
    memcpy(lane, &all, sizeof all);
    for (int i = 0; i < EK_VL; i++)
        sum += lane[i];
    return sum;
}

/* The sum of x - c, or of its squares. */
EK_INLINE float sum_of(const elem *x, long n, float c, const int squares) {
    wide parts[PARTS] = {0};
    const wide center = splat(c);
    long i = 0;
    for (; i + PARTS * EK_VL <= n; i += PARTS * EK_VL) {
        EK_UNROLL
        for (int p = 0; p < PARTS; p++) {
            const wide v = load(x + i + p * EK_VL) - center;
            parts[p] += squares ? v * v : v;
        }
    }
    for (; i + EK_VL <= n; i += EK_VL) {
        const wide v = load(x + i) - center;
        parts[0] += squares ? v * v : v;
    }
    float sum = lanes(parts);
    for (; i < n; i++) {
        const float v = (float)x[i] - c;
        sum += squares ? v * v : v;
    }
    return sum;
}

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_layer_norm_args *a = args;
    const long n = a->n;
    for (long t = begin; t < end; t++) {
        const elem *x = (const elem *)a->x + t * n, *factor = a->factor, *shift = a->shift;
        elem *y = (elem *)a->y + t * n;
        /* Subtract the first value, so that rounding errors are relative to its distance from the
         * mean. */
        const float first = (float)x[0], mean = first + sum_of(x, n, first, 0) / (float)n;
        const float inverse = 1.0f / sqrtf(sum_of(x, n, mean, 1) / (float)n + a->epsilon);
        const wide center = splat(mean), scale = splat(inverse);
        long i = 0;
        for (; i + EK_VL <= n; i += EK_VL) {
            const wide v = (load(x + i) - center) * scale;
            vf_store(y + i, vcast(v * load(factor + i) + load(shift + i), vf));
        }
        for (; i < n; i++)
            y[i] = (elem)(((float)x[i] - mean) * inverse * (float)factor[i] + (float)shift[i]);
    }
}
