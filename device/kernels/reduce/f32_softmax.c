/* Softmax, f32. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include "../elementwise/exp.h"
#include "softmax.h"

/* Sums and maxima in as many parts as a vector has lanes, or they would be one chain. */
#define PARTS 16
#define RUN 256 /* values summed apart: small ones beside a large sum lose their last bits */

static inline float largest_of(const float *x, long n) {
    float part[PARTS], largest = x[0];
    long i = 0;
    if (n >= PARTS) {
        for (int p = 0; p < PARTS; p++)
            part[p] = x[p];
        for (i = PARTS; i + PARTS <= n; i += PARTS) {
            EK_VECTOR_LOOP
            for (int p = 0; p < PARTS; p++)
                part[p] = x[i + p] > part[p] ? x[i + p] : part[p];
        }
        for (int p = 0; p < PARTS; p++)
            largest = part[p] > largest ? part[p] : largest;
    }
    for (; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

static inline float sum_of_run(const float *x, long n) {
    float part[PARTS] = {0}, sum = 0.0f;
    long i = 0;
    for (; i + PARTS <= n; i += PARTS) {
        EK_VECTOR_LOOP
        for (int p = 0; p < PARTS; p++)
            part[p] += x[i + p];
    }
    for (int p = 0; p < PARTS && i; p++)
        sum += part[p];
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

static inline float sum_of(const float *x, long n) {
    float sum = 0.0f;
    for (long i = 0; i < n; i += RUN)
        sum += sum_of_run(x + i, ek_min(RUN, n - i));
    return sum;
}

/* Tasks: rows. */
void NAME(const void *args, long begin, long end) {
    const ek_softmax_args *a = args;
    for (long t = begin; t < end; t++) {
        const float *restrict x = (const float *)a->x + t * a->n;
        float *restrict y = (float *)a->y + t * a->n;
        float largest = largest_of(x, a->n);
        EK_VECTOR_LOOP
        for (long i = 0; i < a->n; i++)
            y[i] = ek_expf((x[i] - largest) * a->beta);
        float sum = sum_of(y, a->n);
        EK_VECTOR_LOOP
        for (long i = 0; i < a->n; i++)
            y[i] = y[i] / sum;
    }
}
