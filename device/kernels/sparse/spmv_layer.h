/* A model's pruned fully connected layer: a product with each row of x. */
#ifndef EK_SPMV_LAYER_H
#define EK_SPMV_LAYER_H
#include "../kernel.h"
#include "pieces.h"

typedef struct {
    int64_t rows, cols, strips, slots; /* of the weights, stored like an ek_sparse */
    int32_t width;
    long images, pieces;
    const ek_strip *strip;
    const float *values;
    const uint8_t *index;
    const uint32_t *order;
    const float *x;    /* [images][cols] */
    float *y;          /* [images][rows] */
    const float *bias; /* [rows], or NULL */
    float low, high;
    void *scratch; /* EK_STRIP_PARTIAL_BYTES per piece */
} ek_spmv_layer_args;
#endif
