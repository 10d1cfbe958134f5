/* Layer normalization of the rows of [rows, n]. */
#ifndef EK_LAYER_NORM_H
#define EK_LAYER_NORM_H
#include "../kernel.h"

typedef struct {
    long n;
    const float *x;
    const float *factor, *shift; /* [n] */
    float *y;
    float epsilon;
} ek_layer_norm_args;
#endif
