/* y[i] = op(x[i]) over n elements. */
#ifndef EK_UNARY_H
#define EK_UNARY_H
#include "../kernel.h"

typedef struct {
    long n;
    const void *x;
    void *y;
    float low, high; /* clamp */
    float scale;     /* quantize, dequantize: real = scale * (stored - zero) */
    int zero, qlow, qhigh;
    const void *table; /* y for each quantized value of x */
    float *x_scale;    /* quantize_dynamic: the scale, then the magnitudes of chunks */
} ek_unary_args;
#endif
