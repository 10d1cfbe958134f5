/* Bilinear resizing of NHWC images. */
#ifndef EK_RESIZE_H
#define EK_RESIZE_H
#include "../kernel.h"

/* Maps output rows (or columns) to input rows (or columns). */
typedef struct {
    long size;      /* of the entire input */
    long held;      /* of x, which may be a part of the input */
    long origin;    /* first row of x in the input */
    long begin;     /* first row of y in the result, of which it may be a part */
    float scale;    /* f32, u8: input pixels per output pixel */
    int half_pixel; /* pixel centers are at half-integers */
    long step;      /* s8, s16: input pixels per output pixel, with EK_RESIZE_BITS fractional
                       bits */
    long offset;    /* of output pixel 0 */
} ek_resize_axis;

typedef struct {
    ek_resize_axis rows, columns;
    long c, oh, ow;
    long pitch; /* elements between consecutive pixels of y: at least c */
    const void *x;
    void *y;
} ek_resize_args;
#endif
