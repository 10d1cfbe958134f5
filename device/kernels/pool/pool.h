/* Pooling of NHWC images; only pixels inside the image count. */
#ifndef EK_POOL_H
#define EK_POOL_H
#include "../kernel.h"

typedef struct {
    ek_window win; /* c = oc */
    long pitch;    /* elements between consecutive pixels of y: at least c */
    const void *x;
    void *y;
    float low_f32, high_f32;
    int low, high;
    /* OP_EVEN; y_zero and the result are those of stored values + shift. */
    int x_zero, y_zero, shift;
    float x_scale, y_scale;
} ek_pool2d_args;
#endif
