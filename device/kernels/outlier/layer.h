/* A fully connected layer or 1x1 convolution whose activations are split at run time: everything
 * except the 8-bit product, which conv/i8_conv.c computes and merges. */
#ifndef EK_OUTLIER_LAYER_H
#define EK_OUTLIER_LAYER_H
#include "../kernel.h"

typedef struct {
    long m, n, k, share;
    float threshold; /* doubled while more than 1 / share of the channels exceed it */
    const float *x;  /* [m][k] */
    /* W as in i8_conv, in parts of `slices` slices of k; the last part may have fewer: [panel]
     * [slice][depth / group][columns][group], of bytes or, in packed panels (gemm/i4_unpack.h),
     * 4-bit values. The last panel is padded to full vectors. If `streamed`, W is in one part, as
     * in grouped_row.h, with scales of the type `scales` in it. */
    const void *weights;
    const float *scale;      /* [k / slice][n_padded], */
    const uint16_t *scale16; /* or the same as bfloat16 */
    long slice, slices, part_bytes, depth, columns, n_padded;
    int bits, streamed, scales;
    uint8_t *x1;      /* [m][k], or NULL: only outliers are found */
    float *row_scale; /* [m] */
    uint32_t *marks;  /* one bit per channel, padded to full words */
    int32_t *channel; /* [k] marked channels */
    int32_t *count;   /* their number */
    float *x2;        /* [m][EK_OUTLIER_CHANNELS] */
    int32_t *sums;    /* [m][k / slice][multiples] sums of x1 over slices, times `factor`, 5 and
                         21 times that (1 + 4 + 16), or NULL */
    int32_t factor, multiples;
    const float *residual; /* [m][n] or NULL; may alias y */
    float *y;              /* [m][n]: residual + X2 . W4, for the terms present; or NULL if the
                              product adds them: then W is not used */
} ek_outlier_layer_args;
#endif
