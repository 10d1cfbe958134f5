/* An 8-bit convolution or fully connected layer of a model on the (emulated) NNA. */
#ifndef EK_NNA_LAYER_H
#define EK_NNA_LAYER_H
#include "../kernel.h"
#include "nna.h"

/* What the nine taps are: a window of at most 3x3; likewise, of weights on the diagonal only; nine
 * groups of input channels of one point, whatever the strides. */
enum { EK_NNA_WINDOWS, EK_NNA_DIAGONAL, EK_NNA_POINTS };

typedef struct {
    ek_nna_chip chip;
    ek_window win; /* one image; strides of windows are equal and 1 or 2 */
    int form;
    long in_groups, out_groups, height, width; /* of 32 channels; of the image, padded */
    int x_zero;
    const int8_t *x, *w; /* w: as ek_nna_conv_args or ek_nna_pointwise_args */
    const int32_t *bias; /* [out_groups * 32], with the zero point of x folded in */
    const int32_t *multiplier, *left, *right; /* [out_groups * 32], see ek_i8_conv_args */
    int once;                                 /* round once, as fully connected layers do */
    int y_zero, low, high;
    int8_t *image; /* [in_groups][height][width][32] */
    int32_t *sums; /* [out_groups][oh][ow][32] */
    int8_t *y;
} ek_nna_layer_args;
#endif
