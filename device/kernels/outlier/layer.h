/* A fully connected layer of a model whose activations are split at run time: all but the product
 * of bytes, which conv/i8_conv.c makes and merges. */
#ifndef EK_OUTLIER_LAYER_H
#define EK_OUTLIER_LAYER_H
#include "../kernel.h"

typedef struct {
    long m, n, k;
    float threshold;
    const float *x; /* [m][k] */
    /* W, as i8_conv has it: for each of k / slice slices [panel][depth / group][columns][group], of
     * bytes or, if `wide`, 16 bits; the last panel has as many columns as whole vectors need. */
    const void *weights;
    const float *scale; /* [k / slice][n_padded] */
    long slice, slice_bytes, depth, group, columns, n_padded;
    int wide;
    uint8_t *x1;      /* [k / slice][m][slice] */
    float *row_scale; /* [m] */
    uint32_t *marks;  /* a bit per channel, in whole words */
    int32_t *channel; /* [k] the marked ones */
    int32_t *count;   /* how many */
    uint8_t *rows;    /* [m][k], room for x1 in the order of x; with one slice it is x1 */
    float *y;         /* [m][n]: X2 . W4, if there are any */
} ek_outlier_layer_args;
#endif
