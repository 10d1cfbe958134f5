/* Kernels of the outlier split, called by outlier.c. */
#ifndef EK_OUTLIER_PARTS_H
#define EK_OUTLIER_PARTS_H
#include "../gemm/blocks.h"
#include "outlier.h"

#define EK_FINITE_BITS 0x7f7fffff /* the largest finite float */

static inline long ek_outlier_padded(long n) {
    return (n + EK_OUTLIER_PADDING - 1) / EK_OUTLIER_PADDING * EK_OUTLIER_PADDING;
}

/* W's panels, and the bytes of one: unpacked; as stored. */
typedef struct {
    const ek_outlier_weights *weights;
    ek_gemm_side side;
    ek_panel_sizes bytes, stored;
} ek_outlier_stored;
ek_outlier_stored ek_outlier_stored_of(const ek_outlier_weights *weights);

/* Sets the bit of every channel that contains a magnitude above `limit` (float bits). Returns
 * whether any value is not finite, provided the limit is below that. */
int ek_outlier_scan(const ek_outlier_args *args, int32_t limit, uint32_t *marks, ek_pool *pool);

/* Finds the first non-finite value; there must be one. */
void ek_outlier_find_bad(const ek_outlier_args *args, ek_outlier_report *report);

/* Computes X1 and the scale of each row. marks: NULL if there are no outliers. */
void ek_outlier_quantize(const ek_outlier_args *args, const uint32_t *marks, uint8_t *x1,
                         float *scale, ek_pool *pool);

/* Gathers X2 [m][outliers] for a list of channels and, unless w4 is NULL, W4, which is split like
 * the panels of W: for each, [outliers][columns of the panel]. */
void ek_outlier_split(const ek_outlier_args *args, const int32_t *channel, long outliers, float *x2,
                      float *w4, ek_pool *pool);

/* Gathers the part of W4 for the panel that starts at a column. */
void ek_outlier_split_panel(const ek_outlier_stored *stored, const int32_t *channel, long outliers,
                            long column, float *w4);

/* Columns [from, until) of panels of W, rows [row, row + rows) of k, as floats `width` apart. */
typedef struct {
    const ek_outlier_weights *weights;
    long panel, panel_end; /* of the packed operand */
    long row, rows, width;
    float *to;
} ek_outlier_block;
void ek_outlier_dequantize(const ek_outlier_block *block, ek_pool *pool);

/* Converts X [rows from `row`][count from `from`] from f16 to float. */
void ek_outlier_widen(const ek_outlier_args *args, long from, long count, float *to);

/* Parameters for converting a tile of sums: the `callback_data` of EK_GEMM_CALLBACK. Row pointers
 * are to row 0. */
typedef struct {
    const ek_outlier_stored *stored; /* used if W4 is computed here */
    const int32_t *channel;
    const float *row_scale, *column_scale;
    const int32_t *excess;
    const float *x2;
    float *w4;
    long outliers;
    int fill; /* W4 is computed panel by panel, with the tile of row 0, which has just read that
                 panel */
    int add;  /* add to C, which holds sums of previous groups */
} ek_outlier_merge;
void ek_outlier_merge_tile(const void *merge, const ek_gemm_sums *sums);

/* X1 . W, merged, for 4-bit weights, and its workspace size. row_scale, x2, w4 and outliers of
 * `merge` refer to all of X; the other fields are set here. */
size_t ek_outlier_int4_bytes(const ek_outlier_args *args, int threads);
void ek_outlier_multiply_int4(const ek_outlier_args *args, const uint8_t *x1,
                              const ek_outlier_merge *merge, char *workspace, ek_pool *pool);
#endif
