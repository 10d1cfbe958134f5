/* Softmax of f32 (f16 with EK_HALF), computed in f32. Compile-time parameters: NAME, EK_SIMD. */
#include <math.h>
#include "../elementwise/exp.h"
#include "softmax.h"

/* Sums and maxima in as many parts as a vector has lanes, or they would be one chain. */
#define PARTS 16
#define RUN 256 /* values summed apart: small ones beside a large sum lose their last bits */

static inline ek_real largest_of(const ek_real *x, long n) {
    ek_real part[PARTS], largest = x[0];
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

static inline void powers_of(const ek_real *restrict x, float largest, float beta,
                             float *restrict y, long n) {
    EK_VECTOR_LOOP
    for (long i = 0; i < n; i++)
        y[i] = ek_expf(((float)x[i] - largest) * beta);
}

#ifdef EK_HALF
/* Powers of f16 are kept in f32: those of rows longer than RUN are made twice. */
static inline void row(const ek_real *restrict x, ek_real *restrict y, float beta, long n) {
    const float largest = largest_of(x, n);
    float power[RUN], sum = 0.0f;
    for (long i = 0; i < n; i += RUN) {
        const long part = ek_min(RUN, n - i);
        powers_of(x + i, largest, beta, power, part);
        sum += sum_of_run(power, part);
    }
    const float share = 1.0f / sum;
    for (long i = 0; i < n; i += RUN) {
        const long part = ek_min(RUN, n - i);
        if (n > RUN)
            powers_of(x + i, largest, beta, power, part);
        EK_VECTOR_LOOP
        for (long k = 0; k < part; k++)
            y[i + k] = (ek_real)(power[k] * share);
    }
}
#else

static inline void row(const float *restrict x, float *restrict y, float beta, long n) {
    powers_of(x, largest_of(x, n), beta, y, n);
    const float sum = sum_of(y, n);
    EK_VECTOR_LOOP
    for (long i = 0; i < n; i++)
        y[i] = y[i] / sum;
}
#endif

/* Tasks: rows. */
void NAME(const void *args, long begin, long end) {
    const ek_softmax_args *a = args;
    for (long t = begin; t < end; t++) {
        const ek_real *x = (const ek_real *)a->x + t * a->n;
        row(x, (ek_real *)a->y + t * a->n, a->beta, a->n);
    }
}
