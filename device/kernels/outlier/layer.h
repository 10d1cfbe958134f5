/* A fully connected layer, or 1x1 convolution, of a model whose activations are split at run time:
 * all but the product of bytes, which conv/i8_conv.c makes and merges. */
#ifndef EK_OUTLIER_LAYER_H
#define EK_OUTLIER_LAYER_H
#include "../kernel.h"

typedef struct {
    long m, n, k;
    float threshold; /* it is doubled while more than a quarter of the channels are beyond it */
    const float *x;  /* [m][k] */
    /* W, as i8_conv has it, in parts of `slices` slices of k, the last perhaps of fewer: [panel]
     * [slice][depth / group][columns][group], of bytes or, in packed panels (gemm/i4_unpack.h),
     * values of 4 bits; the last panel has as many columns as whole vectors need. */
    const void *weights;
    const float *scale;      /* [k / slice][n_padded], */
    const uint16_t *scale16; /* or the same as bfloat16 */
    long slice, slices, part_bytes, depth, columns, n_padded;
    int bits;
    uint8_t *x1;           /* [m][k] */
    float *row_scale;      /* [m] */
    uint32_t *marks;       /* a bit per channel, in whole words */
    int32_t *channel;      /* [k] the marked ones */
    int32_t *count;        /* how many */
    float *x2;             /* [m][EK_OUTLIER_CHANNELS] */
    const float *residual; /* [m][n] or NULL; it may be y */
    float *y;              /* [m][n]: residual + X2 . W4, if there are any */
} ek_outlier_layer_args;
#endif
