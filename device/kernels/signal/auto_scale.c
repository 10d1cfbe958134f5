/* Shifts 16-bit samples left as far as the largest allows. Compile-time parameters: NAME,
 * EK_SIMD. */
#include "../kernel.h"

typedef struct {
    long n;
    const void *x;
    void *y;
    void *bits; /* int32_t: the shift */
} ek_auto_scale_args;

/* The largest magnitude in 16 bits: -2^15 stays negative, and later values are compared with
 * that. */
static int32_t largest_of(const int16_t *x, long n) {
    int32_t most = 0;
    long from = 0;
    EK_VECTOR_LOOP
    for (long i = 0; i < n; i++) {
        const int32_t size = x[i] < 0 ? -x[i] : x[i];
        most = size > most ? size : most;
    }
    if (most <= INT16_MAX)
        return most;
    for (long i = 0; i < n; i++)
        from = x[i] == INT16_MIN ? i + 1 : from;
    most = INT16_MIN;
    for (long i = from; i < n; i++)
        most = x[i] > most ? x[i] : -x[i] > most ? -x[i] : most;
    return most;
}

/* A single task. */
void NAME(const void *args, long begin, long end) {
    const ek_auto_scale_args *g = args;
    const int16_t *x = g->x;
    int16_t *y = g->y;
    (void)begin, (void)end;
    const int32_t most = largest_of(x, g->n);
    const int bits = most > 0 ? __builtin_clz((unsigned)most) - 17 : 0;
    const int32_t factor = 1 << bits;
    EK_VECTOR_LOOP
    for (long i = 0; i < g->n; i++)
        y[i] = (int16_t)(x[i] * factor);
    *(int32_t *)g->bits = bits;
}
