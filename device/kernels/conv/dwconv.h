/* Depthwise convolution, f32 or 8-bit: every channel has a window of its own. */
#ifndef EK_DWCONV_H
#define EK_DWCONV_H
#include "../kernel.h"

typedef struct {
    ek_window win; /* c = oc */
    long c_padded; /* channels rounded up to whole vectors: pitch of weights */
    const void *x;
    const void *weights; /* [tap][c_padded]: f32, or s16 with the zero point subtracted */
    const void *bias;    /* [c_padded]: f32, or s32 with x's zero point folded in */
    const void *border;  /* c elements with the value of padding */
    void *y;
    float low_f32, high_f32;
    const int32_t *multiplier, *left, *right; /* 8-bit: requantization, see ek_i8_conv_args */
    int y_zero, low, high;
} ek_dwconv_args;
#endif
