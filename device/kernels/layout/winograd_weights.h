/* Transformed weights of a convolution, made from its own for conv/f32_winograd.c. */
#ifndef EK_WINOGRAD_WEIGHTS_H
#define EK_WINOGRAD_WEIGHTS_H
#include "../kernel.h"

typedef struct {
    long c, oc, nr;      /* channels of x and y; of a panel: multiples of EK_VL */
    const void *weights; /* [panel][c][9][nr], the last panel unpadded */
    const float *scales; /* [oc] of 8-bit weights, else NULL */
    float *y;            /* [panel][36][c][nr] */
} ek_winograd_weights_args;
#endif
