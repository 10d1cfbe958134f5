/* Sparse matrices in the 3-D block form of the patent on SpMV for vector CPUs, and their products.
 *
 * Rows are cut into strips of `height` rows, a strip into blocks of `width` slots; one aligned
 * vector load takes one slot of all rows of a strip. The last block of a strip holds only the
 * slots its longest row needs, so padding does not depend on the width. A strip is of one kind:
 *
 *   LANES     a row per lane; rows may come from anywhere in a window, sorted by length
 *   WIDE      one long row over all lanes
 *   DIAGONAL  consecutive rows; a slot is a diagonal and stores one column, not `height`
 *   WINDOWS   as LANES, but a window of columns moves over the matrix by half of itself at a time;
 *             what of x is in it is in registers, where permutations pick; for rows that are dense
 *             enough, on cores that have them. A row has what is in the first half done before
 *             that is left, and of the second what finds room, so that rows even out.
 *             Indices: u32 steps, slots of each (u8) up to a multiple of 8 bytes, u8 columns modulo
 *             the window
 *
 *   PACKED    few rows of unlike length, one after another without padding between
 *             Indices: u16 ends of the rows up to a multiple of 8 bytes, columns
 *
 * Column indices are stored per strip in the least width that holds their distance from the
 * strip's first column.
 *
 * An x that does not fit in the L2 cache may be cut into parts that do: every part of the columns
 * has strips of its own over all rows, and y is added up over the parts. */
#ifndef EK_SPARSE_H
#define EK_SPARSE_H
#include <stddef.h>
#include <stdint.h>
#include "../ek.h"

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
    int64_t slot;   /* of all slots before: values are at slot * height */
    int64_t index;  /* byte position of the strip's indices */
    uint32_t slots; /* this strip's own */
    uint32_t base;  /* its first column */
    uint32_t at;    /* its first position in the order of rows */
    uint32_t steps; /* of the window of a WINDOWS strip */
    uint32_t row;   /* its first row; read if the rows are consecutive */
    uint8_t kind;   /* ek_strip_kind */
    uint8_t index_bytes;
    uint8_t rows;     /* 1 .. height */
    uint8_t in_order; /* rows are row, row + 1, ... */
} ek_strip;

typedef struct {
    int32_t dtype, height, width;
    int64_t rows, cols, nonzeros, strips, slots, index_bytes, parts;
    int64_t *part; /* [parts + 1] the first strip of each part */
    ek_strip *strip;
    void *values;
    uint8_t *index;
    uint32_t *order;  /* [parts * rows] the row at each position */
    uint32_t *length; /* [parts * rows] non-zeros of the row at each position */
} ek_sparse;

/* Rows by offsets: row r has indices and values start[r] .. start[r + 1]. */
typedef struct {
    int64_t rows, cols;
    const int64_t *start;
    const int32_t *index;
    const void *values;
    int32_t dtype;
} ek_rows;

/* How a matrix is stored; the knowledge base chooses. */
typedef struct {
    int32_t width;       /* slots of a block: the unit in which threads share work */
    int32_t window;      /* rows sorted together by length; 0 or 1: rows stay in order */
    int32_t wide_from;   /* rows of this many non-zeros and more are WIDE; 0: by padding alone */
    int32_t diagonal;    /* store strips of few diagonals as DIAGONAL */
    int32_t windows;     /* store rows that are dense enough as WINDOWS, where the core has them */
    int32_t index_bytes; /* 0: the least that holds; else at least 1, 2 or 4 */
    int32_t columns;     /* of a part at most, while a part has EK_PART_MEAN of a row; 0: all */
} ek_sparse_settings;

/* A row has at least so many non-zeros in a part, in the mean: each part reads and writes y. */
#define EK_PART_MEAN 2

/* Lanes of a strip in this library for a dtype: register bits / bits of a sum. */
int ek_sparse_height(int dtype);

/* Columns of a window of a strip in this library; 0: it has none for the dtype. The highest
 * bit of a column can mark padding. */
int ek_sparse_window(int dtype);

/* What is wrong with a matrix and where. */
typedef enum {
    EK_ROWS_GOOD = 0,
    EK_ROWS_START,    /* start[row] > start[row + 1] */
    EK_ROWS_INDEX,    /* the index at `at` is not below cols, or negative */
    EK_ROWS_FINITE,   /* the value at `at` is NaN or infinite */
    EK_ROWS_UNSORTED, /* indices of `row` are not ascending: ek_coo_to_rows sorts and sums */
} ek_rows_fault;

int ek_rows_check(const ek_rows *a, int64_t *row, int64_t *at);

/* What the knowledge base looks a matrix up by. deviation: of the non-zeros per row; span: the mean
 * distance from the first to the last column of a row that has any, 1 for a single one. */
typedef struct {
    int64_t longest;
    double mean, deviation, span;
} ek_rows_features;

ek_rows_features ek_rows_measure(const ek_rows *a);

/* Bytes of one stored value. */
int ek_sparse_value_bytes(int dtype);

/* Sorts entries (f32 or f64) into rows, sums duplicates in the order they came in. start: [rows +
 * 1]; index and values: as large as the entries; scratch: [entries] int64 and [cols + 1] int64.
 * Returns the entries left, or -1 - i where entry i is out of range. */
int64_t ek_coo_to_rows(const ek_rows *shape, int64_t entries, const int32_t *row,
                       const int32_t *col, int64_t *start, int32_t *index, void *values,
                       int64_t *scratch);

/* 0: built, free with ek_sparse_free; -1: no memory. `a` must have passed ek_rows_check. */
int ek_sparse_build(const ek_rows *a, const ek_sparse_settings *how, ek_sparse *to);
void ek_sparse_free(ek_sparse *a);

/* Back to rows, without padding; arrays as large as the matrix says. */
void ek_sparse_to_rows(const ek_sparse *a, int64_t *start, int32_t *index, void *values);

/* Bytes of scratch that a product on `threads` needs (64-byte aligned). */
size_t ek_spmv_scratch_bytes(const ek_sparse *a, int threads);

/* y = A . x. Bit-identical from run to run for a number of threads. 0, or 1 if y holds values
 * that are not finite. */
int ek_spmv(const ek_sparse *a, const void *x, void *y, int threads, void *scratch, ek_pool *pool);

/* Nanoseconds of `count` products in a row. */
uint64_t ek_spmv_time(const ek_sparse *a, const void *x, void *y, int threads, void *scratch,
                      ek_pool *pool, long count);

/* Y[rows, pixels] = epilogue(A[rows, cols] . X[cols, pixels]), pixels next to each other: pruned
 * 1x1 convolutions on channel-major images, fully connected layers over many vectors. */
typedef struct ek_spmm_plan ek_spmm_plan;

typedef struct {
    int32_t dtype, index_bytes; /* bytes of a column index: 1, 2 or 4 */
    int64_t rows, cols;
    const int64_t *start; /* [rows + 1] */
    const void *index, *values;
    const float *scale;       /* [rows], S8F */
    const ek_spmm_plan *plan; /* f32, f16, s8, S8F: the weights once more, faster; NULL: none */
} ek_spmm_weights;

/* Two rows, in one panel of columns. Columns where both have weights come first, two to a word:
 * low and high 16 bits, and four values: of the first column's rows, of the second's. Then a column
 * of the first row and one of the second to a word, and two values. A row alone is row[0] and
 * row[1]; the second half of its weights stands as the second row's. Columns count
 * from the panel's first; padding: column 0, value 0.
 *
 * For s8 all rows stand alone in one panel, and -128 as -64 twice, so that two products fit in 16
 * bits together. */
typedef struct {
    uint32_t row[2];
    uint32_t word, value;  /* where its columns and its values begin */
    uint16_t both, single; /* words */
} ek_spmm_pair;

/* Panel p holds columns cols * p / panels .. cols * (p + 1) / panels, at most EK_SPMM_PANEL. */
struct ek_spmm_plan {
    int64_t panels, pairs;    /* pairs in each panel, the same rows in all */
    const ek_spmm_pair *pair; /* [panels][pairs] */
    const uint32_t *columns;
    const void *values; /* of the stored type; EK_SPMM_SPARE more may be read */
};
#define EK_SPMM_SPARE 16

/* Columns of a panel that suit this library. */
int ek_spmm_panel(void);

typedef struct {
    const ek_spmm_weights *a;
    const void *x;
    void *y;
    long pixels, x_row, y_row; /* strides between channels, in elements */
    const void *bias;          /* [rows] of the sums' type, f32 for S8F; NULL: none */
    float low, high;           /* clamp of f32 results; -INFINITY, INFINITY: none */
    int32_t vectors;           /* of pixels at once: 1, 2, 4 or 8; 0: what suits the columns */
    int32_t copy;         /* bring a tile's pixels together first: 1 yes, 0 no, -1 what suits */
    const void *residual; /* f32 results: as y, added before the clamp; NULL: none */
} ek_spmm_args;

void ek_spmm(const ek_spmm_args *args, ek_pool *pool);
uint64_t ek_spmm_time(const ek_spmm_args *args, ek_pool *pool, long count);

/* Nanoseconds of `count` times a = b + 3 c over n floats: 12 n bytes of traffic each. */
uint64_t ek_triad_time(float *a, const float *b, const float *c, long n, ek_pool *pool, long count);

/* Nanoseconds of `count` times reading x at n indices and nothing else: what no product of a matrix
 * with these columns, element by element, goes below. */
uint64_t ek_gather_time(const float *x, const int32_t *index, long n, ek_pool *pool, long count);
#endif
