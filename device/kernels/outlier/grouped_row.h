/* A row by 2-, 3-, 4- or 8-bit weights that have a scale per group of k and column; outliers are
 * added from the panel that the product has just read. */
#ifndef EK_OUTLIER_GROUPED_ROW_H
#define EK_OUTLIER_GROUPED_ROW_H
#include "../kernel.h"

#define EK_ROW_TABLE 16 /* sums of two values of x, by two weights each */

typedef struct {
    long n, groups, group; /* `group` values of x share a scale per column */
    const int8_t *x1;      /* [groups * group] quantized values, 0 where x is an outlier; or tables
                              [groups * group / 2][EK_ROW_TABLE] */
    const int32_t *sums;   /* [groups] what is added to sums of products, or NULL: 0. Of weights
                              stored plus 2, 4 or 8, sums of x1 times that, negated; [groups][3]
                              where bytes have values of several columns: 1, 5 and 21 times that */
    const float *x_scale;  /* of x1; of tables [groups] */
    const float *x;
    const int32_t *channel, *count; /* outliers: *count channels of x */
    /* [panel][group]: values in the order of gemm/i8_tile.h, GROUPS deep; then the columns' scales.
     * The last panel has only as many full vectors of columns as it needs. Of 4-bit values, the
     * first half is in the low halves of bytes and the second in the high ones; they are signed
     * with EK_I8_DOT4_SS, or plus 8. Of 2-bit values, plus 2, the first quarter is in the lowest
     * bits of bytes, the last in the highest; or they are by columns (stream.h). Of 3-bit values,
     * plus 4, the lower two bits likewise; the third bits follow those of two vectors (stream.h),
     * which also has the order for tables. */
    const void *weights;
    const float *bias;     /* [n], padded to full vectors */
    const float *residual; /* [n] or NULL; may alias y */
    float low, high;
    float *y; /* [n] */
} ek_grouped_row_args;
#endif
