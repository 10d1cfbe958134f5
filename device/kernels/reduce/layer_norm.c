/* y = (x - mean) / sqrt(variance + epsilon) * factor + shift, f32. Compile-time parameters: NAME,
 * EK_SIMD. */
#include "layer_norm.h"
#include <math.h>

#define PARTS 4 /* sums side by side, or they would be one chain */

EK_INLINE float lanes(const vf parts[PARTS]) {
    float lane[EK_VL], sum = 0;
    vf_store(lane, (parts[0] + parts[1]) + (parts[2] + parts[3]));
    for (int i = 0; i < EK_VL; i++)
        sum += lane[i];
    return sum;
}

/* The sum of x - c, or of its squares. */
EK_INLINE float sum_of(const float *x, long n, float c, const int squares) {
    vf parts[PARTS] = {0};
    const vf center = vf_splat(c);
    long i = 0;
    for (; i + PARTS * EK_VL <= n; i += PARTS * EK_VL) {
        EK_UNROLL
        for (int p = 0; p < PARTS; p++) {
            const vf v = vf_load(x + i + p * EK_VL) - center;
            parts[p] += squares ? v * v : v;
        }
    }
    for (; i + EK_VL <= n; i += EK_VL) {
        const vf v = vf_load(x + i) - center;
        parts[0] += squares ? v * v : v;
    }
    float sum = lanes(parts);
    for (; i < n; i++)
        sum += squares ? (x[i] - c) * (x[i] - c) : x[i] - c;
    return sum;
}

/* Tasks: rows. */
void NAME(const void *args, long begin, long end) {
    const ek_layer_norm_args *a = args;
    const long n = a->n;
    for (long t = begin; t < end; t++) {
        const float *x = a->x + t * n, *factor = a->factor, *shift = a->shift;
        float *y = a->y + t * n;
        /* Around the first value, whose distance to the mean is what rounding is relative to. */
        const float mean = x[0] + sum_of(x, n, x[0], 0) / (float)n;
        const float inverse = 1.0f / sqrtf(sum_of(x, n, mean, 1) / (float)n + a->epsilon);
        const vf center = vf_splat(mean), scale = vf_splat(inverse);
        long i = 0;
        for (; i + EK_VL <= n; i += EK_VL) {
            const vf v = (vf_load(x + i) - center) * scale;
            vf_store(y + i, v * vf_load(factor + i) + vf_load(shift + i));
        }
        for (; i < n; i++)
            y[i] = (x[i] - mean) * inverse * factor[i] + shift[i];
    }
}
