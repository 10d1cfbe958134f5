/* What planning a matrix's strips and filling them share. */
#ifndef EK_SPARSE_STRIPS_H
#define EK_SPARSE_STRIPS_H
#include "../kernel.h"
#include "sparse.h"

#define MAX_HEIGHT 64

/* Copies the values and columns into the strips of `m`, whose memory is zeroed. */
void ek_sparse_fill(const ek_rows *a, ek_sparse *m);

static inline int64_t length_of(const ek_rows *a, int64_t row) {
    return a->start[row + 1] - a->start[row];
}

/* Bytes before the columns of a WINDOWS strip. */
static inline int64_t window_head(int64_t steps) {
    return (4 + steps + 7) & ~7;
}

/* Next diagonal, as the column of lane 0, over `height` rows from `row`: the least one that no
 * row has passed; moves the rows that are on it on. INT64_MAX: no more. */
static inline int64_t next_diagonal(const ek_rows *a, int64_t row, int height, int64_t *head) {
    int64_t least = INT64_MAX;
    for (int l = 0; l < height; l++)
        if (head[l] < a->start[row + l + 1])
            least = ek_min(least, (int64_t)a->index[head[l]] - l);
    for (int l = 0; l < height; l++)
        head[l] += head[l] < a->start[row + l + 1] && a->index[head[l]] - l == least;
    return least;
}

/* Non-zeros of a row from `at` on that lie before a column. */
static inline int64_t before_column(const ek_rows *a, int64_t row, int64_t at, int64_t column) {
    int64_t n = 0;
    while (at + n < a->start[row + 1] && a->index[at + n] < column)
        n++;
    return n;
}

/* Where a window stands: the rows' next non-zeros and its first column. */
typedef struct {
    int64_t at[MAX_HEIGHT];
    int64_t first;
} moving_window;

static inline moving_window begin_window(const ek_rows *a, const ek_strip *s, const uint32_t *rows,
                                         int half) {
    moving_window w = {.first = (int64_t)s->base - half};
    for (int l = 0; l < s->rows; l++)
        w.at[l] = a->start[rows[l]];
    return w;
}

/* Slots that the rows need before the window moves on: of its first half, of all in the end. */
static inline int64_t slots_due(const ek_rows *a, const ek_strip *s, const uint32_t *rows,
                                const moving_window *w, int half, int last) {
    int64_t most = 0;
    for (int l = 0; l < s->rows; l++)
        most = ek_max(most, before_column(a, rows[l], w->at[l], w->first + half * (1 + last)));
    return most;
}
#endif
