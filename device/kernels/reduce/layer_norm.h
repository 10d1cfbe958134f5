/* Layer normalization of the rows of [rows, n]. */
#ifndef EK_LAYER_NORM_H
#define EK_LAYER_NORM_H
#include "../kernel.h"

typedef struct {
    long n;
    const void *x;
    const void *factor, *shift; /* [n] */
    void *y;
    float epsilon;
} ek_layer_norm_args;
#endif
