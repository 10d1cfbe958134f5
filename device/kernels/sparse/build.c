/* Builds strips from rows: selects the rows of each strip and its kind. */
#include <stdlib.h>
#include <sys/mman.h>
#include "../kernel.h"
#include "strips.h"

#define LINE 64
#define HUGE_PAGE (2 << 20)
#define WIDE_SLOTS(height) (2 * (height)) /* slots from which a row may be WIDE */
/* Strips with a fill ratio below 4/5 are candidates for another kind. */
#define TOO_PADDED(slots, height, held) ((slots) * (height) * 4 > (held) * 5)
/* At most 1.3 stored values per non-zero: for WINDOWS, whose slots are faster but whose values take
 * more bytes, and for LANES, which otherwise become PACKED. */
#define PADDED(slots, height, held) ((slots) * (height) * 10 > (held) * 13)

typedef struct {
    const part_rows *a;
    const ek_sparse_settings *how;
    ek_sparse *to;
    int64_t capacity; /* capacity for strips */
    int64_t at;       /* positions assigned so far */
    uint32_t *pending, *sorted;
    int64_t *count; /* histogram of lengths, for sorting */
    int64_t longest, window;
} builder;

static int least_bytes(int64_t span, int wanted) {
    int bytes = span < 256 ? 1 : span < 65536 ? 2 : 4;
    return bytes < wanted ? wanted : bytes;
}

/* Appends a strip; returns 0 if out of memory. */
static int add_strip(builder *b, ek_strip s) {
    ek_sparse *m = b->to;
    if (m->strips == b->capacity) {
        int64_t capacity = b->capacity ? b->capacity * 2 : 64;
        ek_strip *grown = realloc(m->strip, (size_t)capacity * sizeof *grown);
        if (!grown)
            return 0;
        m->strip = grown, b->capacity = capacity;
    }
    s.slot = m->slots;
    s.index = m->index_bytes;
    s.at = (uint32_t)b->at;
    m->strip[m->strips++] = s;
    m->slots += s.slots;
    int64_t per_slot = s.kind == EK_STRIP_DIAGONAL ? 1 : m->height;
    int64_t head = s.kind == EK_STRIP_WINDOWS  ? window_head(s.steps)
                   : s.kind == EK_STRIP_PACKED ? packed_head(s.rows)
                                               : 0;
    m->index_bytes += head + ((s.slots * per_slot * s.index_bytes + 7) & ~7);
    return 1;
}

static void give_positions(builder *b, const uint32_t *rows, int64_t n) {
    for (int64_t i = 0; i < n; i++, b->at++) {
        b->to->order[b->at] = rows[i];
        b->to->length[b->at] = (uint32_t)length_of(b->a, rows[i]);
    }
}

/* Slots needed by a strip's rows with a moving window. */
static int64_t window_slots(const part_rows *a, const uint32_t *rows, const ek_strip *s, int half) {
    moving_window w = begin_window(a, s, rows, half);
    int64_t slots = 0;
    for (uint32_t i = 0; i < s->steps; i++, w.first += half) {
        int64_t due = slots_due(a, s, rows, &w, half, i + 1 == s->steps);
        for (int l = 0; l < s->rows; l++)
            w.at[l] += ek_min(due, before_column(a, rows[l], w.at[l], w.first + 2 * half));
        slots += due;
    }
    return slots;
}

/* Converts a LANES strip to WINDOWS if that adds little padding: its slots cost a third. */
static void try_windows(const builder *b, const uint32_t *rows, ek_strip *s, int64_t high,
                        int64_t held) {
    const part_rows *a = b->a;
    int half = ek_sparse_window(a->dtype) / 2, height = b->to->height;
    if (!half || !b->how->windows || s->rows < height || held * 4 < high - s->base)
        return;
    ek_strip made = *s;
    made.kind = EK_STRIP_WINDOWS;
    made.index_bytes = 1;
    made.steps = (uint32_t)((high - s->base) / half + 1);
    int64_t slots = window_slots(a, rows, &made, half);
    if (PADDED(slots, height, held))
        return;
    made.slots = (uint32_t)slots;
    *s = made;
}

/* Converts a LANES strip of short rows with much padding to PACKED: processing its non-zeros one by
 * one takes no longer than many empty lanes. */
static void try_packed(ek_strip *s, int height, int64_t held) {
    if (s->kind != EK_STRIP_LANES || s->slots >= WIDE_SLOTS(height))
        return;
    if (!PADDED(s->slots, height, held))
        return;
    s->kind = EK_STRIP_PACKED;
    s->slots = (uint32_t)((held + height - 1) / height);
}

/* Adds a strip of n rows: LANES, or WIDE for a single row spread over all lanes. */
static int add_rows(builder *b, const uint32_t *rows, int64_t n, int kind) {
    const part_rows *a = b->a;
    int64_t low = a->cols, high = 0, longest = 0, held = 0, in_order = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t from = a->from[rows[i]], to = a->to[rows[i]];
        in_order &= rows[i] == rows[0] + i;
        longest = ek_max(longest, to - from);
        held += to - from;
        if (from < to) {
            low = ek_min(low, a->index[from]);
            high = ek_max(high, a->index[to - 1]);
        }
    }
    int height = b->to->height;
    ek_strip s = {
        .slots = (uint32_t)(kind == EK_STRIP_WIDE ? (longest + height - 1) / height : longest),
        .base = (uint32_t)(longest ? low : 0),
        .row = rows[0],
        .kind = (uint8_t)kind,
        .index_bytes = (uint8_t)least_bytes(high - low, b->how->index_bytes),
        .rows = (uint8_t)n,
        .in_order = (uint8_t)in_order,
    };
    if (kind == EK_STRIP_LANES)
        try_windows(b, rows, &s, high, held);
    try_packed(&s, height, held);
    if (!add_strip(b, s))
        return 0;
    give_positions(b, rows, n);
    return 1;
}

static int is_zero(const part_rows *a, int64_t i) {
    switch (a->dtype) {
    case EK_SPARSE_F32:
        return ((const float *)a->values)[i] == 0;
    case EK_SPARSE_F64:
        return ((const double *)a->values)[i] == 0;
    case EK_SPARSE_F16:
        return (((const uint16_t *)a->values)[i] & 0x7fff) == 0;
    default:
        return ((const int8_t *)a->values)[i] == 0;
    }
}

/* Number of diagonals that cover the rows; 0 if there are too many, they leave the matrix, or a
 * stored zero is among them, which padding could not be distinguished from. */
static int64_t count_diagonals(const part_rows *a, int64_t row, int height) {
    int64_t held = 0, count = 0, head[MAX_HEIGHT];
    for (int64_t r = row; r < row + height; r++) {
        held += length_of(a, r);
        for (int64_t i = a->from[r]; i < a->to[r]; i++)
            if (is_zero(a, i))
                return 0;
    }
    memcpy(head, a->from + row, (size_t)height * sizeof *head);
    for (int64_t d; (d = next_diagonal(a, row, height, head)) != INT64_MAX;)
        if (d < 0 || d + height > a->cols || TOO_PADDED(++count, height, held))
            return 0;
    return count;
}

/* Returns 1 if added as DIAGONAL, 0 if not worthwhile, -1 if out of memory. */
static int add_diagonal(builder *b, int64_t row) {
    int height = b->to->height;
    int64_t slots = count_diagonals(b->a, row, height);
    if (!slots)
        return 0;
    ek_strip s = {.slots = (uint32_t)slots,
                  .row = (uint32_t)row,
                  .kind = EK_STRIP_DIAGONAL,
                  .index_bytes = 4,
                  .rows = (uint8_t)height,
                  .in_order = 1};
    if (!add_strip(b, s))
        return -1;
    uint32_t rows[MAX_HEIGHT];
    for (int l = 0; l < height; l++)
        rows[l] = (uint32_t)(row + l);
    give_positions(b, rows, height);
    return 1;
}

/* Sorts stably by descending length; keeps the original order if that adds little padding. */
static void sort_pending(builder *b, int64_t n) {
    const part_rows *a = b->a;
    int height = b->to->height;
    int64_t held = 0, slots = 0, longest = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t length = length_of(a, b->pending[i]);
        longest = ek_max(i % height ? longest : 0, length);
        held += length;
        if (i % height == height - 1 || i == n - 1)
            slots += longest;
    }
    if (slots * height * 20 <= held * 21)
        return;
    memset(b->count, 0, (size_t)(b->longest + 1) * sizeof *b->count);
    for (int64_t i = 0; i < n; i++)
        b->count[b->longest - length_of(a, b->pending[i])]++;
    for (int64_t i = 0, sum = 0; i <= b->longest; i++) {
        int64_t here = b->count[i];
        b->count[i] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < n; i++)
        b->sorted[b->count[b->longest - length_of(a, b->pending[i])]++] = b->pending[i];
    memcpy(b->pending, b->sorted, (size_t)n * sizeof *b->pending);
}

static int is_wide(const builder *b, int64_t i, int64_t rows) {
    int height = b->to->height;
    int64_t length = length_of(b->a, b->pending[i]), held = 0;
    if (b->how->wide_from && length >= b->how->wide_from)
        return 1;
    for (int64_t k = 0; k < rows; k++)
        held += length_of(b->a, b->pending[i + k]);
    return length >= WIDE_SLOTS(height) && TOO_PADDED(length, height, held);
}

static int add_window(builder *b, int64_t from, int64_t to) {
    int height = b->to->height;
    int64_t n = 0;
    for (int64_t row = from; row < to; row += height) {
        int64_t rows = ek_min(height, to - row);
        int done = b->how->diagonal && rows == height ? add_diagonal(b, row) : 0;
        if (done < 0)
            return 0;
        for (int64_t l = 0; l < rows && !done; l++)
            b->pending[n++] = (uint32_t)(row + l);
    }
    if (b->how->window > 1)
        sort_pending(b, n);
    for (int64_t i = 0, rows; i < n; i += rows) {
        rows = ek_min(height, n - i);
        int wide = is_wide(b, i, rows);
        rows = wide ? 1 : rows;
        if (!add_rows(b, b->pending + i, rows, wide ? EK_STRIP_WIDE : EK_STRIP_LANES))
            return 0;
    }
    return 1;
}

static int plan(builder *b, const ek_rows *a, int64_t *cut) {
    ek_sparse *m = b->to;
    for (int64_t p = 0; p < m->parts; p++) {
        const part_rows part = part_of(a, m->parts, p, cut);
        b->a = &part;
        m->part[p] = m->strips;
        for (int64_t from = 0; from < a->rows; from += b->window)
            if (!add_window(b, from, ek_min(from + b->window, a->rows)))
                return 0;
    }
    m->part[m->parts] = m->strips;
    return 1;
}

/* Zeroed, cache-line-aligned memory; never NULL for 0 bytes. Large blocks request huge pages: each
 * product reads them sequentially, with random accesses to x in between. */
static void *aligned_zeros(int64_t bytes) {
    void *made = NULL;
    size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : LINE;
    size_t size = ((size_t)bytes + LINE) & ~(size_t)(LINE - 1);
    if (posix_memalign(&made, align, size))
        return NULL;
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE)
        madvise(made, size, MADV_HUGEPAGE); /* best effort; otherwise pages are small */
#endif
    return memset(made, 0, size);
}

static int allocate_and_fill(const ek_rows *a, int64_t *cut, ek_sparse *m) {
    m->values = aligned_zeros(m->slots * m->height * ek_sparse_value_bytes(m->dtype));
    m->index = aligned_zeros(m->index_bytes);
    if (!m->values || !m->index)
        return 0;
    for (int64_t p = 0; p < m->parts; p++) {
        part_rows part = part_of(a, m->parts, p, cut);
        ek_sparse_fill(&part, m, p);
    }
    return 1;
}

/* Number of column parts: as set, provided that rows are long enough. */
static int64_t parts_for(const ek_rows *a, int64_t columns) {
    if (!a->rows || !a->cols || columns <= 0)
        return 1;
    int64_t parts =
        ek_min((a->cols + columns - 1) / columns, a->start[a->rows] / (EK_PART_MEAN * a->rows));
    return ek_max(ek_min(parts, UINT32_MAX / a->rows), 1); /* positions are 32-bit */
}

static int build(builder *b, const ek_rows *a) {
    ek_sparse *m = b->to;
    m->order = aligned_zeros(m->parts * a->rows * 4);
    m->length = aligned_zeros(m->parts * a->rows * 4);
    m->part = malloc((size_t)(m->parts + 1) * sizeof *m->part);
    b->pending = malloc((size_t)b->window * sizeof *b->pending);
    b->sorted = malloc((size_t)b->window * sizeof *b->sorted);
    b->count = malloc((size_t)(b->longest + 1) * sizeof *b->count);
    int64_t *cut = malloc((size_t)(2 * a->rows + 1) * sizeof *cut);
    int made = m->order && m->length && m->part && b->pending && b->sorted && b->count && cut &&
               plan(b, a, cut) && allocate_and_fill(a, cut, m);
    free(b->pending);
    free(b->sorted);
    free(b->count);
    free(cut);
    return made;
}

int ek_sparse_build(const ek_rows *a, const ek_sparse_settings *how, ek_sparse *to) {
    int height = ek_sparse_height(a->dtype);
    *to = (ek_sparse){.dtype = a->dtype,
                      .height = height,
                      .width = (int32_t)ek_max(how->width, 1),
                      .rows = a->rows,
                      .cols = a->cols,
                      .nonzeros = a->rows ? a->start[a->rows] : 0,
                      .parts = parts_for(a, how->columns)};
    int64_t window = (ek_max(how->window, height) + height - 1) / height * height;
    window = ek_min(window, (a->rows + height - 1) / height * height + height);
    builder b = {.how = how, .to = to, .window = window};
    for (int64_t r = 0; r < a->rows; r++)
        b.longest = ek_max(b.longest, a->start[r + 1] - a->start[r]);
    if (build(&b, a))
        return 0;
    ek_sparse_free(to);
    return -1;
}

void ek_sparse_free(ek_sparse *a) {
    free(a->strip);
    free(a->part);
    free(a->values);
    free(a->index);
    free(a->order);
    free(a->length);
    *a = (ek_sparse){0};
}
