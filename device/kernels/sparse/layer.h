/* A model's pruned 1x1 convolution on channels-first images: Y = A . X per image. */
#ifndef EK_SPARSE_LAYER_H
#define EK_SPARSE_LAYER_H
#include "../kernel.h"
#include "sparse.h"

typedef struct {
    ek_spmm_weights a;
    ek_spmm_plan plan; /* for the same weights; pairs 0: none */
    long images, pixels;
    const float *x;        /* [images][cols][pixels] */
    float *y;              /* [images][rows][pixels] */
    const float *bias;     /* [rows], or NULL */
    const float *residual; /* same layout as y, added before the clamp; or NULL */
    float low, high;
} ek_sparse_layer_args;
#endif
