/* Y[m, n] = X[m, k] . W[k, n] with float activations and 8-bit weights (patent "data processing
 * method, device, electronic equipment and storage medium").
 *
 * A channel of X is an outlier if any of its values exceeds a threshold. Outlier columns of X and
 * the matching rows of W are multiplied in float; everything else is quantized row by row for the
 * integer product, in which outlier channels are zero. Three kernels:
 *
 *   mark and quantize  one bit per channel, complete before the first value is quantized
 *   split              gathers X2 and W4, in one launch; W4 panel by panel if the integer
 *                      product is about to have read that panel anyway
 *   merge              sum * row scale * column scale + X2 . W4, per finished tile of the
 *                      integer product */
#ifndef EK_OUTLIER_H
#define EK_OUTLIER_H
#include "../gemm/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    EK_OUTLIER_AUTO = 0,  /* the path with the lowest estimated cost */
    EK_OUTLIER_SPLIT = 1, /* as above */
    EK_OUTLIER_INT8 = 2,  /* quantizes all of X, including outliers */
    EK_OUTLIER_FLOAT = 3, /* dequantizes W block by block, then a float product */
} ek_outlier_path;

/* Columns of scales and of W4 are padded to a multiple of EK_OUTLIER_PADDING. */

/* The type of X1 for ek_gemm_pack, returned by ek_outlier_dtype (W is always s8): signed bytes, or
 * bytes offset by 128, which VNNI multiplies without a per-value correction. */
int ek_outlier_dtype(void);

/* W packed for the integer product; `scale` and `excess` are [k / group][n padded]. */
typedef struct {
    long n, k, group;      /* `group` values of k share a scale per column; divides k */
    const void *b;         /* k / group operands from ek_gemm_pack, b_bytes apart; or 4-bit
                              values */
    size_t b_bytes;        /* a multiple of 64 */
    const float *scale;    /* W = value * scale */
    const int32_t *excess; /* added to sums by the offset of X1; computed by ek_outlier_excess */
    ek_gemm_method how;    /* the method b was packed for */
    int32_t is_int4;       /* values of -8 to 7, packed by ek_outlier_pack_i4 */
} ek_outlier_weights;

typedef struct {
    const ek_outlier_weights *weights;
    long m, x_row, y_row; /* row strides in elements; columns are contiguous */
    const void *x;        /* f32, or f16 if `half` */
    float *y;
    int32_t half;
    int32_t path;         /* ek_outlier_path */
    int32_t absmax_row;   /* scale by the maximum of all of a row, not only its inliers */
    int32_t check_finite; /* reject NaN and infinity; otherwise they count as outliers */
    float threshold;      /* positive */
    long rows_per_scale;  /* number of rows that share a scale */
    ek_gemm_method how;   /* for m rows, with the nr of weights->how */
} ek_outlier_args;

typedef struct {
    int32_t path;                   /* the path taken */
    long outliers;                  /* number of outlier channels; 0 if not determined */
    long row, channel;              /* of the first non-finite value */
    size_t bytes;                   /* required workspace, including: */
    size_t marks, x1, x2, w4, tile; /* tile: blocks in progress, scales, channel numbers */
    double split_cost, float_cost;  /* estimates for the choice, in float multiply-adds */
} ek_outlier_report;

typedef enum {
    EK_OUTLIER_DONE = 0,
    EK_OUTLIER_MEMORY = 1,     /* workspace below report->bytes; Y is unchanged */
    EK_OUTLIER_NOT_FINITE = 2, /* see report->row and channel; Y is unchanged */
} ek_outlier_status;

/* The workspace is 64-byte aligned and starts with the marks: bit c % 8 of byte c / 8. */
int ek_outlier_run(const ek_outlier_args *args, void *workspace, size_t bytes, ek_pool *pool,
                   ek_outlier_report *report);

/* Computes only the marks, zeroed first: ceil(k / 32) words. Returns the number of outliers. */
long ek_outlier_mark(const ek_outlier_args *args, uint32_t *marks, ek_pool *pool,
                     ek_outlier_report *report);

/* The method that packs W, and that of a product with it, by a table (NULL: none). */
ek_gemm_method ek_outlier_packing(ek_gemm_table *table, long n, long group);
ek_gemm_method ek_outlier_method(ek_gemm_table *table, const ek_outlier_weights *w, long m,
                                 int threads);

/* excess[j] for one group of W, stored as [group][n]. */
void ek_outlier_excess(const int8_t *w, long n, long group, int32_t *excess);

/* Size and packing of k rows of n 4-bit values, two per byte, in the layout of ek_gemm_pack. */
size_t ek_outlier_packed_i4_bytes(long n, long k, const ek_gemm_method *how);
void ek_outlier_pack_i4(long n, long k, const ek_gemm_method *how, const void *from, void *to);

/* Dequantizes rows of W to [count][n padded]. */
void ek_outlier_rows(const ek_outlier_weights *weights, const int32_t *channel, long count,
                     float *rows);

#ifdef __cplusplus
}
#endif

#endif
