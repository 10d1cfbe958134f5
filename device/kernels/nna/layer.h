/* A model's 8-bit convolution or fully connected layer on the (emulated) NNA. */
#ifndef EK_NNA_LAYER_H
#define EK_NNA_LAYER_H
#include "../kernel.h"
#include "nna.h"

/* Use of the nine taps: a window of at most 3x3; the same with diagonal (depthwise) weights; or
 * nine groups of input channels of one point, with any strides. */
enum { EK_NNA_WINDOWS, EK_NNA_DIAGONAL, EK_NNA_POINTS };

typedef struct {
    ek_nna_chip chip;
    ek_window win; /* a single image; window strides are equal and 1 or 2 */
    int form;
    long in_groups, out_groups, height, width; /* groups of 32 channels; padded image size */
    int x_zero;
    const int8_t *x, *w; /* w: layout of ek_nna_conv_args or ek_nna_pointwise_args */
    const int32_t *bias; /* [out_groups * 32], with the zero point of x folded in */
    const int32_t *multiplier, *left, *right; /* [out_groups * 32], as in ek_i8_conv_args */
    int once;                                 /* round once, like fully connected layers */
    int y_zero, low, high;
    int8_t *image; /* [in_groups][height][width][32] */
    int32_t *sums; /* [out_groups][oh][ow][32] */
    int8_t *y;
} ek_nna_layer_args;
#endif
