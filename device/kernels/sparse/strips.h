/* Shared by planning and filling a matrix's strips. */
#ifndef EK_SPARSE_STRIPS_H
#define EK_SPARSE_STRIPS_H
#include "../kernel.h"
#include "sparse.h"

#define MAX_HEIGHT 64

/* The entries of all rows within one part of the columns. */
typedef struct {
    int64_t rows, cols;
    const int64_t *from, *to; /* [rows] first entry, and end */
    const int32_t *index;
    const void *values;
    int32_t dtype;
} part_rows;

/* Part `p`; call in order. cut: [2 * rows] start and end of its rows; unused if there is only one
 * part. */
static inline part_rows part_of(const ek_rows *a, int64_t parts, int64_t p, int64_t *cut) {
    part_rows part = {a->rows, a->cols, a->start, a->start + 1, a->index, a->values, a->dtype};
    if (parts == 1)
        return part;
    int64_t *from = cut, *to = cut + a->rows;
    int64_t end = a->cols / parts * (p + 1) + a->cols % parts * (p + 1) / parts;
    for (int64_t r = 0; r < a->rows; r++) {
        to[r] = from[r] = p ? to[r] : a->start[r];
        while (to[r] < a->start[r + 1] && a->index[to[r]] < end)
            to[r]++;
    }
    part.from = from, part.to = to;
    return part;
}

/* Copies a part's values and columns into its strips of `m`, whose memory is zeroed. */
void ek_sparse_fill(const part_rows *a, ek_sparse *m, int64_t part);

static inline int64_t length_of(const part_rows *a, int64_t row) {
    return a->to[row] - a->from[row];
}

/* Bytes before the columns of a WINDOWS strip. */
static inline int64_t window_head(int64_t steps) {
    return (4 + steps + 7) & ~7;
}

/* Bytes before the columns of a PACKED strip. */
static inline int64_t packed_head(int64_t rows) {
    return (2 * rows + 7) & ~7;
}

/* The next diagonal, as the column of lane 0, over `height` rows starting at `row`: the smallest
 * that no row has passed. Advances the rows that are on it. INT64_MAX: no more. */
static inline int64_t next_diagonal(const part_rows *a, int64_t row, int height, int64_t *head) {
    int64_t least = INT64_MAX;
    for (int l = 0; l < height; l++)
        if (head[l] < a->to[row + l])
            least = ek_min(least, (int64_t)a->index[head[l]] - l);
    for (int l = 0; l < height; l++)
        head[l] += head[l] < a->to[row + l] && a->index[head[l]] - l == least;
    return least;
}

/* Number of a row's non-zeros, starting at `at`, before a column. */
static inline int64_t before_column(const part_rows *a, int64_t row, int64_t at, int64_t column) {
    int64_t n = 0;
    while (at + n < a->to[row] && a->index[at + n] < column)
        n++;
    return n;
}

/* State of a moving window: the rows' next non-zeros and the window's first column. */
typedef struct {
    int64_t at[MAX_HEIGHT];
    int64_t first;
} moving_window;

static inline moving_window begin_window(const part_rows *a, const ek_strip *s,
                                         const uint32_t *rows, int half) {
    moving_window w = {.first = (int64_t)s->base - half};
    for (int l = 0; l < s->rows; l++)
        w.at[l] = a->from[rows[l]];
    return w;
}

/* Slots that the rows need before the window moves on: for its first half, or if `last`, for all of
 * it. */
static inline int64_t slots_due(const part_rows *a, const ek_strip *s, const uint32_t *rows,
                                const moving_window *w, int half, int last) {
    int64_t most = 0;
    for (int l = 0; l < s->rows; l++)
        most = ek_max(most, before_column(a, rows[l], w->at[l], w->first + half * (1 + last)));
    return most;
}
#endif
