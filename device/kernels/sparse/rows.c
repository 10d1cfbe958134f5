/* Matrices by rows: validation, and construction from entries in any order. */
#include <math.h>
#include "../kernel.h"
#include "sparse.h"

int ek_sparse_value_bytes(int dtype) {
    static const int bytes[] = {4, 8, 2, 1};
    return bytes[dtype];
}

/* Index of the first non-finite entry in [from, to); `to` if all are finite. */
static int64_t first_not_finite(const ek_rows *a, int64_t from, int64_t to) {
    int64_t i = from;
    switch (a->dtype) {
    case EK_SPARSE_F32:
        while (i < to && isfinite(((const float *)a->values)[i]))
            i++;
        return i;
    case EK_SPARSE_F64:
        while (i < to && isfinite(((const double *)a->values)[i]))
            i++;
        return i;
    case EK_SPARSE_F16: /* all exponent bits set */
        while (i < to && (((const uint16_t *)a->values)[i] & 0x7c00) != 0x7c00)
            i++;
        return i;
    default:
        return to;
    }
}

int ek_rows_check(const ek_rows *a, int64_t *row, int64_t *at) {
    int64_t unsorted_row = -1, unsorted_at = -1;
    /* Check this first, so that no row extends beyond the last offset. */
    for (int64_t r = 0; r < a->rows; r++)
        if (a->start[r] > a->start[r + 1]) {
            *row = r, *at = a->start[r];
            return EK_ROWS_START;
        }
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t from = a->start[r], to = a->start[r + 1];
        *row = r, *at = from;
        int64_t before = -1;
        for (int64_t i = from; i < to; i++) {
            if (a->index[i] < 0 || a->index[i] >= a->cols) {
                *at = i;
                return EK_ROWS_INDEX;
            }
            if (a->index[i] <= before && unsorted_at < 0)
                unsorted_row = r, unsorted_at = i;
            before = a->index[i];
        }
        *at = first_not_finite(a, from, to);
        if (*at < to)
            return EK_ROWS_FINITE;
    }
    if (unsorted_at < 0)
        return EK_ROWS_GOOD;
    *row = unsorted_row, *at = unsorted_at;
    return EK_ROWS_UNSORTED;
}

ek_rows_features ek_rows_measure(const ek_rows *a) {
    ek_rows_features f = {0};
    double squares = 0, spans = 0, rows = a->rows ? (double)a->rows : 1;
    int64_t used = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        int64_t from = a->start[r], to = a->start[r + 1], length = to - from;
        f.longest = length > f.longest ? length : f.longest;
        squares += (double)length * (double)length;
        if (length) {
            spans += a->index[to - 1] - a->index[from] + 1;
            used++;
        }
    }
    f.mean = a->rows ? (double)a->start[a->rows] / rows : 0;
    double variance = squares / rows - f.mean * f.mean;
    f.deviation = variance > 0 ? sqrt(variance) : 0;
    f.span = used ? spans / (double)used : 0;
    return f;
}

static void put_value(int dtype, void *to, int64_t i, const void *from, int64_t j) {
    size_t bytes = (size_t)ek_sparse_value_bytes(dtype);
    memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)j * bytes, bytes);
}

static void add_value(int dtype, void *values, int64_t i, int64_t j) {
    if (dtype == EK_SPARSE_F32)
        ((float *)values)[i] += ((float *)values)[j];
    else
        ((double *)values)[i] += ((double *)values)[j];
}

/* Converts counts to offsets. */
static void accumulate(int64_t *count, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t here = count[i];
        count[i] = sum;
        sum += here;
    }
}

/* Sums adjacent entries with equal row and column; returns the number left. */
static int64_t merge_equal(const ek_rows *shape, int64_t *start, int32_t *index, void *values) {
    int64_t kept = 0, from = 0;
    for (int64_t r = 0; r < shape->rows; r++) {
        int64_t first = kept, to = start[r + 1];
        for (int64_t i = from; i < to; i++) {
            if (kept > first && index[kept - 1] == index[i]) {
                add_value(shape->dtype, values, kept - 1, i);
                continue;
            }
            index[kept] = index[i];
            put_value(shape->dtype, values, kept++, values, i);
        }
        start[r] = first;
        from = to;
    }
    start[shape->rows] = kept;
    return kept;
}

int64_t ek_coo_to_rows(const ek_rows *shape, int64_t entries, const int32_t *row,
                       const int32_t *col, int64_t *start, int32_t *index, void *values,
                       int64_t *scratch) {
    int64_t *by_col = scratch, *next = scratch + entries;
    memset(next, 0, (size_t)(shape->cols + 1) * sizeof *next);
    memset(start, 0, (size_t)(shape->rows + 1) * sizeof *start);
    for (int64_t i = 0; i < entries; i++) {
        if (row[i] < 0 || row[i] >= shape->rows || col[i] < 0 || col[i] >= shape->cols)
            return -1 - i;
        next[col[i]]++;
        start[row[i]]++;
    }
    accumulate(next, shape->cols);
    accumulate(start, shape->rows);
    /* Sort by column, then by row; both passes are stable. */
    for (int64_t i = 0; i < entries; i++)
        by_col[next[col[i]]++] = i;
    for (int64_t i = 0; i < entries; i++) {
        int64_t from = by_col[i], to = start[row[from]]++;
        index[to] = col[from];
        put_value(shape->dtype, values, to, shape->values, from);
    }
    /* Each offset has advanced to the end of its row. */
    memmove(start + 1, start, (size_t)shape->rows * sizeof *start);
    start[0] = 0;
    return merge_equal(shape, start, index, values);
}
