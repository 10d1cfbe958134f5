/* ek_outlier.h: float activations times 8-bit weights. */
#include "../outlier/outlier.h"
#include "session.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, B_SIDE = 1 };

/* A sum of more int8 products could overflow 32 bits. */
enum { MOST_CHANNELS = 1 << 17 };

struct ek_outlier_matrix {
    ek_kernels_head head;
    ek_kernels *kernels;
    ek_outlier_weights w;
    void *b, *scale, *excess;
};

static int check_weights(ek_kernels *k, const ek_matrix *w, const float *scales, int64_t columns) {
    const int status = ek_session_check(k, "ek_outlier", "w", w);
    if (status)
        return status;
    if (w->type != EK_S8 || w->rows > MOST_CHANNELS)
        return ek_session_fail(k, EK_INPUT,
                               "ek_outlier: expected w of s8 with at most %d channels, found %s "
                               "[%lld, %lld]",
                               MOST_CHANNELS, ek_type_name(w->type), (long long)w->rows,
                               (long long)w->columns);
    if (columns != w->columns || (columns && !scales))
        return ek_session_fail(k, EK_INPUT, "ek_outlier: expected %lld scales, found %s%lld",
                               (long long)w->columns, scales ? "" : "NULL for ",
                               (long long)columns);
    if ((uintptr_t)scales % sizeof *scales)
        return ek_session_fail(k, EK_INPUT,
                               "ek_outlier: expected scales aligned to %zu bytes, found them %zu "
                               "bytes beyond",
                               sizeof *scales, (size_t)((uintptr_t)scales % sizeof *scales));
    for (int64_t i = 0; i < columns; i++)
        if (!(scales[i] > 0) || !isfinite(scales[i]))
            return ek_session_fail(k, EK_INPUT,
                                   "ek_outlier: expected scales above 0, found %g at [%lld]",
                                   (double)scales[i], (long long)i);
    return EK_DONE;
}

/* W in rows, copied if it is stored otherwise; NULL without memory. */
static const int8_t *in_rows(const ek_matrix *w, int8_t **copy) {
    *copy = NULL;
    if (w->column_stride == 1 && w->row_stride == w->columns)
        return w->data;
    int8_t *to = *copy = malloc((size_t)w->rows * (size_t)w->columns + 1);
    for (int64_t i = 0; to && i < w->rows; i++)
        for (int64_t j = 0; j < w->columns; j++)
            *to++ = ((const int8_t *)w->data)[i * w->row_stride + j * w->column_stride];
    return *copy;
}

static int pack(ek_outlier_matrix *m, const ek_matrix *w, const float *scales) {
    const long n = m->w.n = (long)w->columns, k = m->w.k = m->w.group = (long)w->rows;
    const size_t padded = (size_t)(n + EK_OUTLIER_PADDING - 1) / EK_OUTLIER_PADDING *
                          EK_OUTLIER_PADDING * sizeof(float);
    const int dtype = ek_outlier_dtype();
    int8_t *copy;
    m->w.how = ek_outlier_packing(m->kernels->products, n, k);
    m->w.b_bytes =
        (ek_gemm_packed_bytes(dtype, B_SIDE, n, k, &m->w.how) + ALIGN - 1) / ALIGN * ALIGN;
    m->b = ek_session_allocate(m->w.b_bytes);
    m->scale = ek_session_allocate(padded);
    m->excess = ek_session_allocate(padded);
    const int8_t *values = in_rows(w, &copy);
    const int found = values && m->b && m->scale && m->excess;
    if (found) {
        memset(m->b, 0, m->w.b_bytes);
        memset(m->scale, 0, padded);
        memset(m->excess, 0, padded);
        if (k && n) {
            ek_gemm_pack(dtype, B_SIDE, n, k, &m->w.how, values, n, 1, m->b);
            memcpy(m->scale, scales, (size_t)n * sizeof *scales);
            ek_outlier_excess(values, n, k, m->excess);
        }
        m->w.b = m->b, m->w.scale = m->scale, m->w.excess = m->excess;
    }
    free(copy);
    return found;
}

void ek_api_outlier_close(ek_outlier_matrix *m) {
    free(m->b);
    free(m->scale);
    free(m->excess);
    free(m);
}

static int open_weights(ek_kernels *k, const ek_matrix *w, const float *scales, int64_t columns,
                        ek_outlier_matrix **weights) {
    if (!w || !weights)
        return ek_session_fail(k, EK_INPUT, "ek_outlier: expected weights, found NULL");
    *weights = NULL;
    const int status = check_weights(k, w, scales, columns);
    if (status)
        return status;
    ek_outlier_matrix *m = calloc(1, sizeof *m);
    if (m) {
        m->head = k->head;
        m->kernels = k;
    }
    if (!m || !pack(m, w, scales)) {
        if (m)
            ek_api_outlier_close(m);
        return ek_session_fail(k, EK_MEMORY,
                               "ek_outlier: expected memory for weights of [%lld, %lld], found too "
                               "little; free some",
                               (long long)w->rows, (long long)w->columns);
    }
    *weights = m;
    return EK_DONE;
}

int ek_api_outlier_open(ek_kernels *k, const ek_matrix *w, const float *scales, int64_t columns,
                        ek_outlier_matrix **weights) {
    pthread_mutex_lock(&k->lock);
    const int status = open_weights(k, w, scales, columns, weights);
    pthread_mutex_unlock(&k->lock);
    return status;
}

static int has_rows(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    return (columns < 2 || column_stride == 1) && (rows < 2 || row_stride >= columns);
}

static int check(ek_kernels *k, const ek_outlier_weights *w, const ek_matrix *x, float threshold,
                 const ek_result *y) {
    if (!x || !y)
        return ek_session_fail(k, EK_INPUT, "ek_outlier: expected x and y, found NULL");
    const ek_matrix *const others[] = {x};
    int status = ek_session_check(k, "ek_outlier", "x", x);
    status = status ? status : ek_session_check_result(k, "ek_outlier", "y", y, others, 1);
    if (status)
        return status;
    if ((x->type != EK_F32 && x->type != EK_F16) || x->columns != w->k)
        return ek_session_fail(k, EK_INPUT,
                               "ek_outlier: expected x of f32 or f16 with %ld channels, found %s "
                               "[%lld, %lld]",
                               w->k, ek_type_name(x->type), (long long)x->rows,
                               (long long)x->columns);
    if (y->type != EK_F32 || y->rows != x->rows || y->columns != w->n)
        return ek_session_fail(k, EK_INPUT,
                               "ek_outlier: expected y of f32 [%lld, %ld], found %s [%lld, %lld]",
                               (long long)x->rows, w->n, ek_type_name(y->type), (long long)y->rows,
                               (long long)y->columns);
    if (!has_rows(x->rows, x->columns, x->row_stride, x->column_stride) ||
        !has_rows(y->rows, y->columns, y->row_stride, y->column_stride))
        return ek_session_fail(k, EK_INPUT,
                               "ek_outlier: expected x and y in rows of adjacent elements, found "
                               "strides of [%lld, %lld] and [%lld, %lld]",
                               (long long)x->row_stride, (long long)x->column_stride,
                               (long long)y->row_stride, (long long)y->column_stride);
    if (!(threshold > 0))
        return ek_session_fail(k, EK_INPUT, "ek_outlier: expected a threshold above 0, found %g",
                               (double)threshold);
    return EK_DONE;
}

static int multiply(ek_outlier_matrix *m, const ek_matrix *x, float threshold, const ek_result *y,
                    int threads, ek_outlier_choice *choice) {
    static const char *const paths[] = {"auto", "split", "int8", "float"};
    ek_kernels *k = m->kernels;
    ek_pool *pool;
    ek_outlier_report report = {0};
    int status = check(k, &m->w, x, threshold, y);
    status = status ? status : ek_session_pool(k, "ek_outlier", threads, &pool);
    if (status)
        return status;
    if (choice)
        memset(choice, 0, sizeof *choice);
    if (!y->rows || !y->columns)
        return EK_DONE;
    const ek_outlier_args args = {
        .weights = &m->w,
        .m = (long)x->rows,
        .x_row = (long)x->row_stride,
        .y_row = (long)y->row_stride,
        .x = x->data,
        .y = y->data,
        .half = x->type == EK_F16,
        .check_finite = 1,
        .threshold = threshold,
        .rows_per_scale = 1,
        .how = ek_outlier_method(k->products, &m->w, (long)x->rows, threads),
    };
    int found = EK_OUTLIER_MEMORY;
    while (found == EK_OUTLIER_MEMORY) {
        if ((status = ek_session_reserve(k, report.bytes)))
            return status;
        found = ek_outlier_run(&args, k->scratch, k->scratch_bytes, pool, &report);
    }
    if (found == EK_OUTLIER_NOT_FINITE)
        return ek_session_fail(k, EK_INPUT,
                               "ek_outlier: expected finite x, found another value at row %ld, "
                               "channel %ld",
                               report.row, report.channel);
    if (choice) {
        snprintf(choice->path, sizeof choice->path, "%s", paths[report.path]);
        choice->outliers = report.outliers;
        choice->split_cost = report.split_cost, choice->float_cost = report.float_cost;
    }
    return EK_DONE;
}

int ek_api_outlier(ek_outlier_matrix *m, const ek_matrix *x, float threshold, const ek_result *y,
                   int threads, ek_outlier_choice *choice) {
    pthread_mutex_lock(&m->kernels->lock);
    const int status = multiply(m, x, threshold, y, threads, choice);
    pthread_mutex_unlock(&m->kernels->lock);
    return status;
}
