/* Bilinear resizing of NHWC images. */
#ifndef EK_RESIZE_H
#define EK_RESIZE_H
#include "../kernel.h"

/* How rows (columns) of the output fall on those of the input. */
typedef struct {
    long size;      /* of the input */
    float scale;    /* f32, u8: input pixels per output pixel */
    int half_pixel; /* pixel centers lie at halves */
    long step;      /* s8, s16: input pixels per output pixel, EK_RESIZE_BITS after the point */
    long offset;    /* of output pixel 0 */
} ek_resize_axis;

typedef struct {
    ek_resize_axis rows, columns;
    long c, oh, ow;
    long pitch; /* elements from one pixel of y to the next: at least c */
    const void *x;
    void *y;
} ek_resize_args;
#endif
