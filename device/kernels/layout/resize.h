/* Bilinear resizing of NHWC images. */
#ifndef EK_RESIZE_H
#define EK_RESIZE_H
#include "../kernel.h"

typedef struct {
    int n, h, w, c, oh, ow;
    float y_scale, x_scale; /* input pixels per output pixel */
    int half_pixel;         /* pixel centers lie at halves */
    const float *x;
    float *y;
} ek_resize_args;
#endif
