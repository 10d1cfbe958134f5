/* Runs sparse products described by a file. As a model it has one input, the cases of
 * sparse_cases.py, and one output. For each case it writes A . x, single- and multithreaded, A
 * converted back to rows, and A . X. Every array gets a separate heap block, so that sanitizers
 * catch the first out-of-bounds byte. */
#include "cases_model.h"
#include "sparse/sparse.h"

#define THREADS 3

enum { START, INDEX, VALUES, X, MANY, BIAS, SCALE, NARROW, PAIR, COLUMNS, PAIRED, RESIDUAL, PARTS };

typedef struct {
    int64_t dtype, rows, cols, pixels, sum_bytes;
    int64_t width, window, wide_from, diagonal, windows, index_bytes, columns;
    int64_t vectors, copy, panels, pairs, narrow_bytes;
    int64_t bytes[PARTS]; /* -1 for NULL */
    double low, high;
} description;

static char *put(char *to, void *from, size_t bytes) {
    memcpy(to, from, bytes);
    free(from);
    return to + bytes;
}

static char *by_vector(const description *d, const ek_rows *a, void *const parts[PARTS],
                       ek_pool *pool, char *to) {
    const ek_sparse_settings how = {
        .width = (int32_t)d->width,
        .window = (int32_t)d->window,
        .wide_from = (int32_t)d->wide_from,
        .diagonal = (int32_t)d->diagonal,
        .windows = (int32_t)d->windows,
        .index_bytes = (int32_t)d->index_bytes,
        .columns = (int32_t)d->columns,
    };
    ek_sparse m;
    int64_t row, at;
    if (ek_rows_check(a, &row, &at) != EK_ROWS_GOOD || ek_sparse_build(a, &how, &m))
        abort();
    const int threads[] = {1, THREADS};
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)(d->rows * d->sum_bytes);
        void *y = block(bytes), *scratch = block(ek_spmv_scratch_bytes(&m, threads[i]));
        if (ek_spmv(&m, parts[X], y, threads[i], scratch, i ? pool : NULL))
            abort();
        free(scratch);
        to = put(to, y, bytes);
    }
    size_t values = (size_t)d->bytes[VALUES], index = (size_t)d->bytes[INDEX];
    size_t starts = (size_t)d->bytes[START];
    void *start = block(starts), *columns = block(index), *kept = block(values);
    ek_sparse_to_rows(&m, start, columns, kept);
    ek_sparse_free(&m);
    return put(put(put(to, start, starts), columns, index), kept, values);
}

static char *by_matrix(const description *d, void *const parts[PARTS], ek_pool *pool,
                       const ek_spmm_plan *plan, char *to) {
    const ek_spmm_weights a = {
        .dtype = (int32_t)d->dtype,
        .index_bytes = (int32_t)d->narrow_bytes,
        .rows = d->rows,
        .cols = d->cols,
        .start = parts[START],
        .index = parts[NARROW],
        .values = parts[VALUES],
        .scale = parts[SCALE],
        .plan = plan,
    };
    size_t bytes = (size_t)(d->rows * d->pixels * d->sum_bytes);
    void *y = block(bytes);
    const ek_spmm_args args = {
        .a = &a,
        .x = parts[MANY],
        .y = y,
        .pixels = d->pixels,
        .x_row = d->pixels,
        .y_row = d->pixels,
        .bias = parts[BIAS],
        .residual = parts[RESIDUAL],
        .low = (float)d->low,
        .high = (float)d->high,
        .vectors = (int32_t)d->vectors,
        .copy = (int32_t)d->copy,
    };
    ek_spmm(&args, pool);
    return put(to, y, bytes);
}

static char *run_case(const char **from, char *to, ek_pool *pool) {
    description d;
    void *parts[PARTS];
    take(from, &d, sizeof d);
    take_parts(from, PARTS, d.bytes, parts);
    const ek_rows a = {d.rows, d.cols, parts[START], parts[INDEX], parts[VALUES], (int32_t)d.dtype};
    if (d.dtype != EK_SPARSE_S8F)
        to = by_vector(&d, &a, parts, pool, to);
    const ek_spmm_plan plan = {d.panels, d.pairs, parts[PAIR], parts[COLUMNS], parts[PAIRED]};
    to = by_matrix(&d, parts, pool, NULL, to);
    if (d.pairs)
        to = by_matrix(&d, parts, pool, &plan, to);
    free_parts(PARTS, parts);
    return to;
}
