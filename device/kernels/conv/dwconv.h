/* Depthwise convolution, f32 or 8-bit: every channel has a window of its own. */
#ifndef EK_DWCONV_H
#define EK_DWCONV_H
#include "../kernel.h"

typedef struct {
    ek_window win; /* c = oc */
    const void *x;
    const void *weights; /* [block][tap][BLOCK]: floats, or s8 less a zero point that is w_zero with
                            W_ZERO, else 0; the last block of many ends with the last channel */
    const void *bias;    /* f32, or s32 with x's zero point folded in */
    const void *border;  /* a row of x (w * c) with the value of padding */
    void *y;
    float low_f32, high_f32;
    ek_epilogue epilogue;                     /* f32 */
    const int32_t *multiplier, *left, *right; /* 8-bit: requantization, see ek_i8_conv_args */
    int w_zero, y_zero, low, high;
    const uint8_t *table; /* 8-bit with LOOK_UP */
    int strip; /* tiles of columns made of all channels before the next ones; at least 1 */
} ek_dwconv_args;
#endif
