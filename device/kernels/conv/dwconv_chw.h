/* Depthwise convolution of f32 images in channels-first layout. */
#ifndef EK_DWCONV_CHW_H
#define EK_DWCONV_CHW_H
#include "../kernel.h"

typedef struct {
    ek_window win;       /* c = oc; n * c planes */
    const float *x;      /* [n][c][h][w] */
    const void *weights; /* [c][kh * kw]; f16 ones (NARROW 16), and a vector more, are readable */
    const float *bias;   /* [c] */
    float *y;            /* [n][c][oh][ow] */
    float low, high;
    int band, bands; /* output rows per task; tasks per plane */
} ek_dwconv_chw_args;
#endif
