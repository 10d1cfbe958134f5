/* Y[m, n] = X[m, k] . W[k, n]: activations of floats, weights of bytes (patent "data processing
 * method, device, electronic equipment and storage medium").
 *
 * A channel of X is an outlier if any of its values is beyond a threshold. Those columns of X, and
 * the rows of W they meet, are multiplied as floats; everything else is quantized row by row and
 * goes through the integer product, where outlier channels are zero. Three kernels:
 *
 *   mark and quantize  one bit per channel, complete before the first value is quantized
 *   split              gathers X2 and W4, in one launch; W4 panel by panel where the integer
 *                      product is about to have read that panel anyway
 *   merge              sum * scale of the row * scale of the column + X2 . W4, per finished tile of
 *                      the integer product
 */
#ifndef EK_OUTLIER_H
#define EK_OUTLIER_H
#include "../gemm/gemm.h"

typedef enum {
    EK_OUTLIER_AUTO = 0,  /* what costs least */
    EK_OUTLIER_SPLIT = 1, /* as above */
    EK_OUTLIER_INT8 = 2,  /* all of X quantized, outliers too */
    EK_OUTLIER_FLOAT = 3, /* W dequantized block by block, a product of floats */
} ek_outlier_path;

/* Columns of scales and of W4 are padded to a multiple of EK_OUTLIER_PADDING. */

/* What ek_outlier_dtype says X1 is, as ek_gemm_pack wants it (W is s8 in any case): bytes with a
 * sign, or shifted by 128, which VNNI multiplies without a correction per value. */
int ek_outlier_dtype(void);

/* W, ready for the integer product; `scale` and `excess` are [k / group][n padded]. */
typedef struct {
    long n, k, group;      /* `group` values of k share a scale per column; it divides k */
    const void *b;         /* k / group operands of ek_gemm_pack, b_bytes apart; or 4-bit values */
    size_t b_bytes;        /* a multiple of 64 */
    const float *scale;    /* W = value * scale */
    const int32_t *excess; /* what the shift of X1 adds to the sums; ek_outlier_excess fills it */
    ek_gemm_method how;    /* what b was packed for */
    int32_t four;          /* values of -8 to 7, packed by ek_outlier_pack_i4 */
} ek_outlier_weights;

typedef struct {
    const ek_outlier_weights *weights;
    long m, x_row, y_row; /* rows are so many elements apart, columns are side by side */
    const void *x;        /* f32, or f16 if `half` */
    float *y;
    int32_t half;
    int32_t path;         /* ek_outlier_path */
    int32_t absmax_row;   /* scales from whole rows instead of their inliers */
    int32_t check_finite; /* refuse NaN and infinity; else they count as outliers */
    float threshold;      /* above 0 */
    long rows_per_scale;  /* so many rows share a scale */
    ek_gemm_method how;   /* for m rows, with the nr of weights->how */
} ek_outlier_args;

typedef struct {
    int32_t path;                   /* the one taken */
    long outliers;                  /* channels; 0 where they were not looked for */
    long row, channel;              /* of the first value that is not finite */
    size_t bytes;                   /* workspace that the call needs, of which: */
    size_t marks, x1, x2, w4, tile; /* tile: blocks on the way, scales, channel numbers */
    double split_cost, float_cost;  /* as the choice saw them, in multiply-adds of floats */
} ek_outlier_report;

typedef enum {
    EK_OUTLIER_DONE = 0,
    EK_OUTLIER_MEMORY = 1,     /* workspace below report->bytes; Y is untouched */
    EK_OUTLIER_NOT_FINITE = 2, /* report->row and channel; Y is untouched */
} ek_outlier_status;

/* The workspace is 64-byte aligned and starts with the marks: bit c % 8 of byte c / 8. */
int ek_outlier_run(const ek_outlier_args *args, void *workspace, size_t bytes, ek_pool *pool,
                   ek_outlier_report *report);

/* Marks alone, zeroed first: ceil(k / 32) words. Returns the number of outliers. */
long ek_outlier_mark(const ek_outlier_args *args, uint32_t *marks, ek_pool *pool,
                     ek_outlier_report *report);

/* excess[j] for one group of W, which stands [group][n] in memory. */
void ek_outlier_excess(const int8_t *w, long n, long group, int32_t *excess);

/* An operand of ek_gemm_pack for k rows of n values of 4 bits, two per byte, and its size. */
size_t ek_outlier_packed_i4_bytes(long n, long k, const ek_gemm_method *how);
void ek_outlier_pack_i4(long n, long k, const ek_gemm_method *how, const void *from, void *to);

/* Rows of W as floats, [count][n padded]. */
void ek_outlier_rows(const ek_outlier_weights *weights, const int32_t *channel, long count,
                     float *rows);
#endif
