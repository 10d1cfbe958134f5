/* Runs outlier-split products described by a file. As a model it has one input, the cases of
 * outlier_cases.py. For each case it writes a status, the marks, all rows of W as floats, and Y.
 * Every array gets a separate heap block of its exact size, so that sanitizers catch the first
 * out-of-bounds byte. */
#include "cases_model.h"
#include "gemm/microkernels.h"
#include "outlier/outlier.h"

enum { X, W, SCALE, PARTS };

typedef struct {
    int64_t m, k, n, group, x_row, half;
    int64_t path, absmax_row, check_finite, rows_per_scale;
    int64_t is_int4; /* W holds values from -8 to 7, packed two per byte */
    int64_t mr, nv;  /* register tile, in rows and vectors */
    int64_t bytes[PARTS];
    double threshold;
} description;

static size_t padded(long n) {
    return (size_t)((n + EK_OUTLIER_PADDING - 1) / EK_OUTLIER_PADDING * EK_OUTLIER_PADDING);
}

/* The caller frees b, scale and excess. */
static ek_outlier_weights packed(const description *d, const int8_t *w, const float *scale) {
    const int dtype = ek_outlier_dtype();
    const int32_t nr = (int32_t)d->nv * ek_gemm_families[dtype]->operands->vl;
    const ek_gemm_method how = {64, 64, 64, (int32_t)d->mr, nr, 0, 0, 0};
    const long groups = d->group ? d->k / d->group : 0;
    const size_t int8_bytes = ek_gemm_packed_bytes(dtype, 1, d->n, d->group, &how);
    size_t size = d->is_int4 ? ek_outlier_packed_i4_bytes(d->n, d->group, &how) : int8_bytes;
    size = (size + 63) / 64 * 64;
    char *b = block((size_t)groups * size), *once = block(int8_bytes);
    float *scales = block((size_t)groups * padded(d->n) * sizeof *scales);
    int32_t *excess = block((size_t)groups * padded(d->n) * sizeof *excess);
    for (long i = 0; i < groups; i++) {
        const int8_t *from = w + i * d->group * d->n;
        char *to = b + (size_t)i * size;
        ek_gemm_pack(dtype, 1, d->n, d->group, &how, from, d->n, 1, d->is_int4 ? once : to);
        if (d->is_int4)
            ek_outlier_pack_i4(d->n, d->group, &how, once, to);
        memset(scales + (size_t)i * padded(d->n), 0, padded(d->n) * sizeof *scales);
        memcpy(scales + (size_t)i * padded(d->n), scale + i * d->n, (size_t)d->n * sizeof *scales);
        ek_outlier_excess(from, d->n, d->group, excess + (size_t)i * padded(d->n));
    }
    free(once);
    return (ek_outlier_weights){d->n,   d->k, d->group,           b, size, scales,
                                excess, how,  (int32_t)d->is_int4};
}

static char *write_rows(const ek_outlier_weights *w, char *to) {
    int32_t *channels = block((size_t)w->k * sizeof *channels);
    float *rows = block((size_t)w->k * padded(w->n) * sizeof *rows);
    for (long i = 0; i < w->k; i++)
        channels[i] = (int32_t)i;
    if (w->k)
        ek_outlier_rows(w, channels, w->k, rows);
    for (long i = 0; i < w->k; i++, to += (size_t)w->n * sizeof *rows)
        memcpy(to, rows + (size_t)i * padded(w->n), (size_t)w->n * sizeof *rows);
    free(rows);
    free(channels);
    return to;
}

static char *multiply(const description *d, const ek_outlier_weights *w, const void *x, char *to,
                      ek_pool *pool) {
    const size_t y_bytes = (size_t)(d->m * d->n) * sizeof(float);
    float *y = block(y_bytes);
    const ek_outlier_args args = {
        .weights = w,
        .m = d->m,
        .x_row = d->x_row,
        .y_row = d->n,
        .x = x,
        .y = y,
        .half = (int32_t)d->half,
        .path = (int32_t)d->path,
        .absmax_row = (int32_t)d->absmax_row,
        .check_finite = (int32_t)d->check_finite,
        .threshold = (float)d->threshold,
        .rows_per_scale = d->rows_per_scale,
        .how = w->how,
    };
    ek_outlier_report report = {0};
    char *workspace = block(0);
    size_t bytes = 0;
    int status;
    while ((status = ek_outlier_run(&args, workspace, bytes, pool, &report)) == EK_OUTLIER_MEMORY) {
        free(workspace);
        bytes = report.bytes;
        workspace = block(bytes);
    }
    const int64_t parts = (int64_t)(report.marks + report.x1 + report.x2 + report.w4 + report.tile);
    const int64_t header[] = {
        status, report.path, report.outliers, report.row, report.channel, (int64_t)bytes, parts};
    memcpy(to, header, sizeof header);
    memcpy(to + sizeof header, workspace, (size_t)(d->k + 7) / 8);
    to += sizeof header + (size_t)(d->k + 7) / 8;
    to = write_rows(w, to);
    memcpy(to, y, y_bytes);
    free(workspace);
    free(y);
    return to + y_bytes;
}

static char *run_case(const char **from, char *to, ek_pool *pool) {
    description d;
    void *parts[PARTS];
    take(from, &d, sizeof d);
    take_parts(from, PARTS, d.bytes, parts);
    const ek_outlier_weights w = packed(&d, parts[W], parts[SCALE]);
    to = multiply(&d, &w, parts[X], to, pool);
    free((void *)(uintptr_t)w.b);
    free((void *)(uintptr_t)w.scale);
    free((void *)(uintptr_t)w.excess);
    free_parts(PARTS, parts);
    return to;
}
