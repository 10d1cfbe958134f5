/* Depthwise convolution, f32 or 8-bit: one filter per channel. */
#ifndef EK_DWCONV_H
#define EK_DWCONV_H
#include "../kernel.h"

typedef struct {
    ek_window win; /* c = oc */
    const void *x;
    const void *weights; /* [block][tap][BLOCK]: floats, or s8 minus a zero point that is w_zero
                            with W_ZERO, else 0; the last of several blocks ends at the last
                            channel */
    const void *bias;    /* f32, or s32 with x's zero point folded in */
    const void *border;  /* a row of x (w * x_pitch) filled with the padding value */
    void *y;
    long x_pitch, pitch; /* elements between pixels of x and y: c, or with PITCHED more */
    float low_f32, high_f32;
    ek_epilogue epilogue;                     /* f32 */
    const int32_t *multiplier, *left, *right; /* 8-bit: requantization as in ek_i8_conv_args */
    int w_zero, y_zero, low, high;
    const uint8_t *table; /* 8-bit with LOOK_UP */
    int strip; /* column tiles per strip (all channels of a strip before the next one); at least
                  1 */
} ek_dwconv_args;
#endif
