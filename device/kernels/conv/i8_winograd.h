/* 8-bit convolution of 3x3 windows, stride 1, in tiles of 4x4 output pixels (Winograd F(4x4, 3x3)),
 * with the results of conv/i8_conv.c. */
#ifndef EK_I8_WINOGRAD_H
#define EK_I8_WINOGRAD_H
#include "../kernel.h"

typedef struct {
    ek_window win;
    long panels; /* ceil(oc / NR) */
    long parts;  /* parts the panels are split into, one per task; 1 if there are enough tiles for
                    all threads */
    const void *x;
    int x_zero;             /* zero point of x as stored, which is the padding value */
    const int16_t *weights; /* transformed: [panel][36][c rounded up to 8][NR] */
    const int32_t *bias;    /* and all other parameters of channels: padded to full panels */
    const int32_t *multiplier, *left, *right; /* as in conv/i8_conv.h */
    int y_zero, low, high;
    const float *slope, *offset, *second_slope, *second_offset;
    const uint8_t *table;
    void *y;
    long pitch; /* elements between consecutive pixels of y: at least oc */
} ek_i8_winograd_args;
#endif
