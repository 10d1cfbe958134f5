/* Convolutions of s16 images with s8 weights. */
#ifndef EK_CONV_16X8_H
#define EK_CONV_16X8_H
#include "../kernel.h"

typedef struct {
    ek_window win;
    int groups;
    int depth;  /* channels of x per group */
    int share;  /* channels of y per group */
    int blocks; /* blocks of BLOCK channels of y, per group, or (DEPTHWISE) in total */
    const int16_t *x;
    const int8_t *weights; /* [groups, blocks, kh, kw, depth, BLOCK]; DEPTHWISE: [kh, kw, oc] */
    const int64_t *bias;   /* [oc] */
    const int32_t *multiplier, *right; /* [oc]; negative `right` shifts left */
    int low, high;
    int16_t *y;
} ek_conv_16x8_args;
#endif
