/* Softmax, f32. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include "../elementwise/exp.h"
#include "softmax.h"

/* Tasks: rows. */
void NAME(const void *args, long begin, long end) {
    const ek_softmax_args *a = args;
    for (long t = begin; t < end; t++) {
        const float *restrict x = (const float *)a->x + t * a->n;
        float *restrict y = (float *)a->y + t * a->n;
        float largest = x[0], sum = 0.0f;
        for (long i = 1; i < a->n; i++)
            largest = x[i] > largest ? x[i] : largest;
        for (long i = 0; i < a->n; i++)
            y[i] = ek_expf((x[i] - largest) * a->beta);
        for (long i = 0; i < a->n; i++)
            sum += y[i];
        for (long i = 0; i < a->n; i++)
            y[i] = y[i] / sum;
    }
}
