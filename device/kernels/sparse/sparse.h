/* Sparse matrices in the 3-D block format of the patent on SpMV for vector CPUs, and their
 * products.
 *
 * Rows are divided into strips of `height` rows, strips into blocks of `width` slots; one aligned
 * vector load reads one slot of all rows of a strip. A strip's last block holds only as many slots
 * as its longest row needs, so padding does not depend on the width. Strip kinds:
 *
 *   LANES     one row per lane, from anywhere in a sorting window, sorted by length
 *   WIDE      one long row over all lanes
 *   DIAGONAL  consecutive rows; a slot is a diagonal and stores one column, not `height`
 *   WINDOWS   like LANES, but a window of columns moves over the matrix by half its size at a
 *             time; its part of x is in registers, from which permutations select. For rows that
 *             are dense enough, on cores that support it. A row finishes the first half before
 *             the window moves on, and uses spare slots for the second, which evens out rows.
 *             Indices: u32 steps, slots of each (u8), padded to a multiple of 8 bytes, u8 columns
 *             modulo the window
 *   PACKED    a few rows of very different length, consecutively without padding
 *             Indices: u16 ends of the rows, padded to a multiple of 8 bytes, columns
 *
 * Column indices are stored per strip, relative to its first column, in the smallest sufficient
 * width.
 *
 * An x that exceeds L2 may be divided into parts that fit: every part of the columns has its own
 * strips over all rows, and y is accumulated over the parts. */
#ifndef EK_SPARSE_H
#define EK_SPARSE_H
#include <stddef.h>
#include <stdint.h>
#include "../ek.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    EK_SPARSE_F32 = 0,
    EK_SPARSE_F64 = 1,
    EK_SPARSE_F16 = 2, /* stored as f16, x and y are f32 */
    EK_SPARSE_S8 = 3,  /* x is s8, y is s32, exact modulo 2^32 */
    EK_SPARSE_S8F = 4, /* products with matrices only: x is f32, y is f32 = scale * sum */
} ek_sparse_dtype;

typedef enum {
    EK_STRIP_LANES = 0,
    EK_STRIP_WIDE = 1,
    EK_STRIP_DIAGONAL = 2,
    EK_STRIP_WINDOWS = 3,
    EK_STRIP_PACKED = 4
} ek_strip_kind;

typedef struct {
    int64_t slot;   /* slots of all previous strips: values start at slot * height */
    int64_t index;  /* byte offset of the strip's indices */
    uint32_t slots; /* of this strip */
    uint32_t base;  /* its first column */
    uint32_t at;    /* its first position in the row order */
    uint32_t steps; /* window steps of a WINDOWS strip */
    uint32_t row;   /* its first row; valid if the rows are consecutive */
    uint8_t kind;   /* ek_strip_kind */
    uint8_t index_bytes;
    uint8_t rows;     /* 1 .. height */
    uint8_t in_order; /* rows are row, row + 1, ... */
} ek_strip;

typedef struct {
    int32_t dtype, height, width;
    int64_t rows, cols, nonzeros, strips, slots, index_bytes, parts;
    int64_t *part; /* [parts + 1] each part's first strip */
    ek_strip *strip;
    void *values;
    uint8_t *index;
    uint32_t *order;  /* [parts * rows] row at each position */
    uint32_t *length; /* [parts * rows] non-zeros of the row at each position */
} ek_sparse;

/* Compressed rows: indices and values of row r are start[r] .. start[r + 1]. */
typedef struct {
    int64_t rows, cols;
    const int64_t *start;
    const int32_t *index;
    const void *values;
    int32_t dtype;
} ek_rows;

/* Storage settings, chosen by the knowledge base. */
typedef struct {
    int32_t width;       /* slots per block, the unit of work distribution */
    int32_t window;      /* number of rows sorted together by length; 0 or 1: keep the order */
    int32_t wide_from;   /* rows with at least this many non-zeros are WIDE; 0: decided by padding
                            only */
    int32_t diagonal;    /* store strips of few diagonals as DIAGONAL */
    int32_t windows;     /* store sufficiently dense rows as WINDOWS, if the core supports it */
    int32_t index_bytes; /* minimum width: 1, 2 or 4; 0: the smallest sufficient */
    int32_t columns;     /* maximum per part, if parts have EK_PART_MEAN non-zeros per row; 0: a
                            single part */
} ek_sparse_settings;

/* Minimum mean number of non-zeros per row and part, because each part reads and writes y. */
#define EK_PART_MEAN 2

/* This library's lanes per strip for a dtype: register bits / bits of a sum. */
int ek_sparse_height(int dtype);

/* This library's columns per window of a strip; 0: not supported for the dtype. A column's highest
 * bit can mark padding. */
int ek_sparse_window(int dtype);

/* Kind of error in a matrix, and its position. */
typedef enum {
    EK_ROWS_GOOD = 0,
    EK_ROWS_START,    /* start[row] > start[row + 1] */
    EK_ROWS_INDEX,    /* the index at `at` is negative or >= cols */
    EK_ROWS_FINITE,   /* the value at `at` is NaN or infinite */
    EK_ROWS_UNSORTED, /* indices of `row` are not ascending: ek_coo_to_rows sorts and sums */
} ek_rows_fault;

int ek_rows_check(const ek_rows *a, int64_t *row, int64_t *at);

/* Features for look-up in the knowledge base. deviation: of the non-zeros per row; span: the mean
 * distance from the first to the last column of nonempty rows, 1 for a single entry. */
typedef struct {
    int64_t longest;
    double mean, deviation, span;
} ek_rows_features;

ek_rows_features ek_rows_measure(const ek_rows *a);

/* Bytes of one stored value. */
int ek_sparse_value_bytes(int dtype);

/* Sorts entries (f32 or f64) by row and column and sums duplicates in input order. start: [rows +
 * 1]; index and values: as large as the entries; scratch: [entries] int64 and [cols + 1] int64.
 * Returns the number of entries left, or -1 - i if entry i is out of range. */
int64_t ek_coo_to_rows(const ek_rows *shape, int64_t entries, const int32_t *row,
                       const int32_t *col, int64_t *start, int32_t *index, void *values,
                       int64_t *scratch);

/* Returns 0 on success (free with ek_sparse_free), -1 if out of memory. `a` must have passed
 * ek_rows_check. */
int ek_sparse_build(const ek_rows *a, const ek_sparse_settings *how, ek_sparse *to);
void ek_sparse_free(ek_sparse *a);

/* Converts back to rows, without padding; the matrix gives the array sizes. */
void ek_sparse_to_rows(const ek_sparse *a, int64_t *start, int32_t *index, void *values);

/* Bytes of scratch (64-byte aligned) that a product on `threads` needs. */
size_t ek_spmv_scratch_bytes(const ek_sparse *a, int threads);

/* y = A . x, bit-identical between runs with the same number of threads. Returns 0, or 1 if y
 * contains non-finite values. */
int ek_spmv(const ek_sparse *a, const void *x, void *y, int threads, void *scratch, ek_pool *pool);

/* Nanoseconds of `count` consecutive products. */
uint64_t ek_spmv_time(const ek_sparse *a, const void *x, void *y, int threads, void *scratch,
                      ek_pool *pool, long count);

/* Y[rows, pixels] = epilogue(A[rows, cols] . X[cols, pixels]) with adjacent pixels: pruned 1x1
 * convolutions on channels-first images, fully connected layers over many vectors. */
typedef struct ek_spmm_plan ek_spmm_plan;

typedef struct {
    int32_t dtype, index_bytes; /* bytes per column index: 1, 2 or 4 */
    int64_t rows, cols;
    const int64_t *start; /* [rows + 1] */
    const void *index, *values;
    const float *scale;       /* [rows], S8F */
    const ek_spmm_plan *plan; /* f32, f16, s8, S8F: a faster copy of the weights; NULL: none */
} ek_spmm_weights;

/* Two rows in one panel of columns. Columns used by both rows come first, two per word (low and
 * high half), with four values: those of both rows for the first column, then for the second.
 * Next, each word holds a column of the first row and one of the second, with two values. A row
 * without partner is both row[0] and row[1]; the second half of its weights takes the second row's
 * place. Columns are relative to the panel's first; padding: column 0, value 0.
 *
 * For s8 no rows are paired and there is one panel; -128 is stored as -64 twice, so that two
 * products fit 16 bits. */
typedef struct {
    uint32_t row[2];
    uint32_t word, value;  /* start of its columns and values */
    uint16_t both, single; /* numbers of words */
} ek_spmm_pair;

/* Panel p holds columns cols * p / panels .. cols * (p + 1) / panels, at most EK_SPMM_PANEL. */
struct ek_spmm_plan {
    int64_t panels, pairs;    /* pairs per panel, with the same rows in all panels */
    const ek_spmm_pair *pair; /* [panels][pairs] */
    const void *columns;      /* words: u32, in models u16 */
    const void *values;       /* of the stored type; EK_SPMM_SPARE extra ones are readable */
};
#define EK_SPMM_SPARE 16

/* Preferred columns per panel for this library. */
int ek_spmm_panel(void);

typedef struct {
    const ek_spmm_weights *a;
    const void *x;
    void *y;
    long pixels, x_row, y_row; /* strides between channels, in elements */
    const void *bias;          /* [rows] in the sums' type, f32 for S8F; NULL: none */
    float low, high;           /* clamp of f32 results; -INFINITY, INFINITY: no clamp */
    int32_t vectors;           /* vectors of pixels at once: 1, 2, 4 or 8; 0: automatic, by the
                                  columns */
    int32_t copy;              /* copy a tile's pixels together first: 1 yes, 0 no, -1 automatic */
    const void *residual; /* f32 results: same layout as y, added before the clamp; NULL: none */
} ek_spmm_args;

void ek_spmm(const ek_spmm_args *args, ek_pool *pool);
uint64_t ek_spmm_time(const ek_spmm_args *args, ek_pool *pool, long count);

/* Nanoseconds of `count` times a = b + 3 c over n floats: 12 n bytes of traffic each. */
uint64_t ek_triad_time(float *a, const float *b, const float *c, long n, ek_pool *pool, long count);

/* Nanoseconds of `count` times reading x at n indices and nothing else: a lower bound for
 * element-wise products of a matrix with these columns. */
uint64_t ek_gather_time(const float *x, const int32_t *index, long n, ek_pool *pool, long count);

#ifdef __cplusplus
}
#endif

#endif
