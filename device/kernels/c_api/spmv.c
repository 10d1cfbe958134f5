/* ek_spmv.h: products of sparse matrices and vectors. */
#include "session.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int32_t values, x, y;
} types[] = {
    [EK_SPARSE_F32] = {EK_F32, EK_F32, EK_F32},
    [EK_SPARSE_F64] = {EK_F64, EK_F64, EK_F64},
    [EK_SPARSE_F16] = {EK_F16, EK_F32, EK_F32},
    [EK_SPARSE_S8] = {EK_S8, EK_S8, EK_S32},
};
enum { TYPES = sizeof types / sizeof *types };

/* Smaller products finish before another thread wakes up. */
enum { WORTH_THREADS = 65536 };

struct ek_spmv_matrix {
    ek_kernels_head head;
    ek_kernels *kernels;
    ek_sparse stored;
    ek_sparse_answer answer;
};

static int check_rows(ek_kernels *k, const ek_rows *a) {
    static const char *const wanted[] = {
        [EK_ROWS_START] = "starts that ascend",
        [EK_ROWS_INDEX] = "columns of the matrix",
        [EK_ROWS_FINITE] = "finite values",
        [EK_ROWS_UNSORTED] = "columns that ascend",
    };
    int64_t row, at;
    const int fault = ek_rows_check(a, &row, &at);
    return fault ? ek_session_fail(k, EK_INPUT,
                                   "ek_spmv: row %lld: expected %s, found others at entry %lld",
                                   (long long)row, wanted[fault], (long long)at)
                 : EK_DONE;
}

static int check(ek_kernels *k, const ek_csr *a, ek_rows *rows) {
    if (a->rows < 0 || a->columns < 0 || a->rows > INT32_MAX || a->columns > INT32_MAX ||
        a->nonzeros < 0)
        return ek_session_fail(k, EK_INPUT,
                               "ek_spmv: expected sizes of 0 to %d, found [%lld, %lld] with %lld "
                               "entries",
                               INT32_MAX, (long long)a->rows, (long long)a->columns,
                               (long long)a->nonzeros);
    if (!a->starts || (a->nonzeros && (!a->indices || !a->values)))
        return ek_session_fail(k, EK_INPUT,
                               "ek_spmv: expected starts, indices and values, found NULL");
    for (rows->dtype = 0; rows->dtype < TYPES; rows->dtype++)
        if (types[rows->dtype].values == a->type)
            break;
    if (rows->dtype == TYPES)
        return ek_session_fail(k, EK_INPUT,
                               "ek_spmv: expected values of f32, f64, f16 or s8, found %s",
                               ek_type_name(a->type));
    if ((uintptr_t)a->starts % sizeof *a->starts || (uintptr_t)a->indices % sizeof *a->indices ||
        (uintptr_t)a->values % ek_type_bytes(a->type))
        return ek_session_fail(k, EK_INPUT,
                               "ek_spmv: expected arrays aligned to their elements, found others");
    if (a->starts[0] || a->starts[a->rows] != a->nonzeros)
        return ek_session_fail(
            k, EK_INPUT, "ek_spmv: expected starts from 0 to %lld, found %lld to %lld",
            (long long)a->nonzeros, (long long)a->starts[0], (long long)a->starts[a->rows]);
    rows->rows = a->rows, rows->cols = a->columns;
    rows->start = a->starts, rows->index = a->indices, rows->values = a->values;
    return check_rows(k, rows);
}

static int open_matrix(ek_kernels *k, const ek_csr *a, ek_spmv_matrix **matrix) {
    ek_rows rows;
    if (!a || !matrix)
        return ek_session_fail(k, EK_INPUT, "ek_spmv: expected a matrix, found NULL");
    *matrix = NULL;
    const int status = check(k, a, &rows);
    if (status)
        return status;
    ek_spmv_matrix *m = calloc(1, sizeof *m);
    if (m) {
        m->head = k->head;
        m->kernels = k;
        m->answer = ek_sparse_table_find(k->sparse, &rows);
    }
    if (!m || ek_sparse_build(&rows, &m->answer.how, &m->stored)) {
        free(m);
        return ek_session_fail(k, EK_MEMORY,
                               "ek_spmv: expected memory for %lld rows in blocks, found too "
                               "little; free some or cut the matrix into parts",
                               (long long)a->rows);
    }
    *matrix = m;
    return EK_DONE;
}

int ek_api_spmv_open(ek_kernels *k, const ek_csr *a, ek_spmv_matrix **matrix) {
    pthread_mutex_lock(&k->lock);
    const int status = open_matrix(k, a, matrix);
    pthread_mutex_unlock(&k->lock);
    return status;
}

/* The error of an x that is not finite; without one, sums overflowed. */
static int check_finite(ek_kernels *k, const ek_sparse *a, const void *x) {
    for (int64_t i = 0; i < a->cols; i++) {
        const double value =
            types[a->dtype].x == EK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
        if (!isfinite(value))
            return ek_session_fail(k, EK_INPUT, "ek_spmv: expected finite x, found %g at [%lld]",
                                   value, (long long)i);
    }
    return EK_DONE;
}

static int multiply(ek_kernels *k, const ek_sparse *a, const void *x, int64_t columns, void *y,
                    int64_t rows, int threads) {
    const ek_matrix given = {x, 1, columns, columns ? columns : 1, 1, types[a->dtype].x};
    const ek_result result = {y, 1, rows, rows ? rows : 1, 1, types[a->dtype].y};
    const ek_matrix *const others[] = {&given};
    ek_pool *pool;
    if (columns != a->cols || rows != a->rows)
        return ek_session_fail(k, EK_INPUT,
                               "ek_spmv: expected x of %lld and y of %lld elements, found %lld and "
                               "%lld",
                               (long long)a->cols, (long long)a->rows, (long long)columns,
                               (long long)rows);
    int status = ek_session_check(k, "ek_spmv", "x", &given);
    status = status ? status : ek_session_check_result(k, "ek_spmv", "y", &result, others, 1);
    if (threads > 1 && threads <= EK_MOST_THREADS && a->nonzeros < WORTH_THREADS)
        threads = 1;
    status = status ? status : ek_session_pool(k, "ek_spmv", threads, &pool);
    status = status ? status : ek_session_reserve(k, ek_spmv_scratch_bytes(a, threads));
    if (!status && ek_spmv(a, x, y, threads, k->scratch, pool))
        status = check_finite(k, a, x);
    return status;
}

int ek_api_spmv(ek_spmv_matrix *matrix, const void *x, int64_t columns, void *y, int64_t rows,
                int threads) {
    ek_kernels *k = matrix->kernels;
    pthread_mutex_lock(&k->lock);
    const int status = multiply(k, &matrix->stored, x, columns, y, rows, threads);
    pthread_mutex_unlock(&k->lock);
    return status;
}

int ek_api_spmv_explain(ek_spmv_matrix *matrix, ek_spmv_choice *choice) {
    static const char *const rules[] = {"exact", "nearest", "patent"};
    const ek_sparse *a = &matrix->stored;
    const ek_sparse_settings *how = &matrix->answer.how;
    if (!choice) {
        pthread_mutex_lock(&matrix->kernels->lock);
        const int status = ek_session_fail(matrix->kernels, EK_INPUT,
                                           "ek_spmv_explain: expected choice, found NULL");
        pthread_mutex_unlock(&matrix->kernels->lock);
        return status;
    }
    memset(choice, 0, sizeof *choice);
    snprintf(choice->rule, sizeof choice->rule, "%s", rules[matrix->answer.rule]);
    snprintf(choice->reason, sizeof choice->reason, "%s", matrix->answer.why);
    choice->bytes = a->slots * a->height * ek_sparse_value_bytes(a->dtype) + a->index_bytes +
                    a->strips * (int64_t)sizeof(ek_strip) + a->parts * a->rows * 8;
    choice->height = a->height, choice->width = how->width, choice->window = how->window;
    choice->wide_from = how->wide_from, choice->diagonal = how->diagonal;
    choice->windows = how->windows, choice->index_bytes = how->index_bytes;
    choice->columns = how->columns;
    return EK_DONE;
}

void ek_api_spmv_close(ek_spmv_matrix *matrix) {
    ek_sparse_free(&matrix->stored);
    free(matrix);
}
