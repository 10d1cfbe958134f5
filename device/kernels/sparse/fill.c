/* Copies values and columns into strips, and back to rows. */
#include "strips.h"

static void put_index(uint8_t *to, int64_t i, int bytes, uint32_t value) {
    memcpy(to + i * bytes, &value, (size_t)bytes); /* the low bytes: all boards are little-endian */
}

static uint32_t get_index(const uint8_t *from, int64_t i, int bytes) {
    uint32_t value = 0;
    memcpy(&value, from + i * bytes, (size_t)bytes);
    return value;
}

static void copy_value(int bytes, void *to, int64_t i, const void *from, int64_t j) {
    memcpy((char *)to + i * bytes, (const char *)from + j * bytes, (size_t)bytes);
}

/* Values of a DIAGONAL strip are stored by diagonal and lane. */
static void fill_diagonal(const part_rows *a, ek_sparse *m, const ek_strip *s) {
    int64_t head[MAX_HEIGHT], before[MAX_HEIGHT];
    int bytes = ek_sparse_value_bytes(m->dtype);
    memcpy(head, a->from + s->row, (size_t)m->height * sizeof *head);
    for (int64_t slot = 0; slot < s->slots; slot++) {
        memcpy(before, head, sizeof before);
        int64_t d = next_diagonal(a, s->row, m->height, head);
        put_index(m->index + s->index, slot, 4, (uint32_t)d);
        for (int l = 0; l < m->height; l++)
            if (head[l] != before[l])
                copy_value(bytes, m->values, (s->slot + slot) * m->height + l, a->values,
                           before[l]);
    }
}

/* Padding repeats the row's last column: memory that the row reads anyway. */
static void fill_row(const part_rows *a, ek_sparse *m, const ek_strip *s, int lane) {
    int64_t row = m->order[s->at + (uint32_t)lane], from = a->from[row], n = length_of(a, row);
    int64_t step = s->kind == EK_STRIP_WIDE ? 1 : m->height;
    int64_t cells = s->kind == EK_STRIP_WIDE ? (int64_t)s->slots * m->height : s->slots;
    int bytes = ek_sparse_value_bytes(m->dtype);
    for (int64_t i = 0; i < cells; i++) {
        int64_t cell = i * step + lane;
        uint32_t col = n ? (uint32_t)a->index[from + ek_min(i, n - 1)] - s->base : 0;
        put_index(m->index + s->index, cell, s->index_bytes, col);
        if (i < n)
            copy_value(bytes, m->values, s->slot * m->height + cell, a->values, from + i);
    }
}

/* After the last row, memory stays zero. */
static void fill_packed(const part_rows *a, ek_sparse *m, const ek_strip *s) {
    const uint32_t *rows = m->order + s->at;
    int bytes = ek_sparse_value_bytes(m->dtype);
    uint8_t *head = m->index + s->index, *columns = head + packed_head(s->rows);
    int64_t cell = 0;
    for (int l = 0; l < s->rows; l++) {
        for (int64_t i = a->from[rows[l]]; i < a->to[rows[l]]; i++, cell++) {
            put_index(columns, cell, s->index_bytes, (uint32_t)a->index[i] - s->base);
            copy_value(bytes, m->values, s->slot * m->height + cell, a->values, i);
        }
        put_index(head, l, 2, (uint32_t)cell);
    }
}

/* Columns are modulo the window; padding stays zero except for its mark. */
static void fill_windows(const part_rows *a, ek_sparse *m, const ek_strip *s) {
    int half = ek_sparse_window(m->dtype) / 2, bytes = ek_sparse_value_bytes(m->dtype);
    const uint32_t *rows = m->order + s->at;
    uint8_t *head = m->index + s->index, *columns = head + window_head(s->steps);
    moving_window w = begin_window(a, s, rows, half);
    memcpy(head, &s->steps, 4);
    memset(columns, EK_STRIP_PADDING, (size_t)s->slots * (size_t)m->height);
    int64_t slot = 0;
    for (uint32_t step = 0; step < s->steps; step++, w.first += half) {
        int64_t due = slots_due(a, s, rows, &w, half, step + 1 == s->steps);
        for (int l = 0; l < s->rows; l++) {
            int64_t n = ek_min(due, before_column(a, rows[l], w.at[l], w.first + 2 * half));
            for (int64_t i = 0; i < n; i++, w.at[l]++) {
                int64_t cell = (slot + i) * m->height + l;
                columns[cell] = (uint8_t)((a->index[w.at[l]] - s->base) % (2 * half));
                copy_value(bytes, m->values, s->slot * m->height + cell, a->values, w.at[l]);
            }
        }
        head[4 + step] = (uint8_t)due;
        slot += due;
    }
}

void ek_sparse_fill(const part_rows *a, ek_sparse *m, int64_t part) {
    for (int64_t i = m->part[part]; i < m->part[part + 1]; i++) {
        const ek_strip *s = m->strip + i;
        if (s->kind == EK_STRIP_DIAGONAL)
            fill_diagonal(a, m, s);
        else if (s->kind == EK_STRIP_WINDOWS)
            fill_windows(a, m, s);
        else if (s->kind == EK_STRIP_PACKED)
            fill_packed(a, m, s);
        else
            for (int l = 0; l < s->rows; l++)
                fill_row(a, m, s, l);
    }
}

/* Position of the n-th non-zero of lane `lane` in a LANES, WIDE or PACKED strip. */
static int64_t cell_of(const ek_sparse *m, const ek_strip *s, int lane, int64_t n) {
    if (s->kind == EK_STRIP_PACKED)
        return n + (lane ? get_index(m->index + s->index, lane - 1, 2) : 0);
    return s->kind == EK_STRIP_WIDE ? n : n * m->height + lane;
}

static void restore_row(const ek_sparse *m, const ek_strip *s, int lane, int64_t to, int32_t *index,
                        void *values) {
    int bytes = ek_sparse_value_bytes(m->dtype);
    uint32_t n = m->length[s->at + (uint32_t)lane];
    const uint8_t *columns = m->index + s->index;
    columns += s->kind == EK_STRIP_PACKED ? packed_head(s->rows) : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = cell_of(m, s, lane, i);
        uint32_t col = s->base + get_index(columns, cell, s->index_bytes);
        index[to + i] = (int32_t)col;
        copy_value(bytes, values, to + i, m->values, s->slot * m->height + cell);
    }
}

static int is_padding(const ek_sparse *m, int64_t cell) {
    static const char zeros[8];
    int bytes = ek_sparse_value_bytes(m->dtype);
    return memcmp((const char *)m->values + cell * bytes, zeros, (size_t)bytes) == 0;
}

static void restore_diagonal(const ek_sparse *m, const ek_strip *s, int lane, int64_t to,
                             int32_t *index, void *values) {
    int bytes = ek_sparse_value_bytes(m->dtype);
    for (int64_t slot = 0; slot < s->slots; slot++) {
        int64_t cell = (s->slot + slot) * m->height + lane;
        if (is_padding(m, cell))
            continue;
        index[to] = (int32_t)get_index(m->index + s->index, slot, 4) + lane;
        copy_value(bytes, values, to++, m->values, cell);
    }
}

static void restore_windows(const ek_sparse *m, const ek_strip *s, int lane, int64_t to,
                            int32_t *index, void *values) {
    int half = ek_sparse_window(m->dtype) / 2, bytes = ek_sparse_value_bytes(m->dtype);
    const uint8_t *head = m->index + s->index, *columns = head + window_head(s->steps);
    int64_t slot = 0;
    for (uint32_t step = 0; step < s->steps; step++)
        for (int i = 0; i < head[4 + step]; i++, slot++) {
            int64_t cell = slot * m->height + lane;
            if (columns[cell] == EK_STRIP_PADDING)
                continue;
            /* A column outside the half that arrived with this step is in the half of the previous
             * step. */
            uint32_t before = (uint32_t)(columns[cell] / half) ^ (step & 1);
            uint32_t first = s->base + (step - before) * (uint32_t)half;
            index[to] = (int32_t)(first + (uint32_t)(columns[cell] % half));
            copy_value(bytes, values, to++, m->values, s->slot * m->height + cell);
        }
}

void ek_sparse_to_rows(const ek_sparse *a, int64_t *start, int32_t *index, void *values) {
    memset(start, 0, (size_t)(a->rows + 1) * sizeof *start);
    for (int64_t i = 0; i < a->parts * a->rows; i++)
        start[a->order[i] + 1] += a->length[i];
    for (int64_t r = 0; r < a->rows; r++)
        start[r + 1] += start[r];
    /* Up to the end, where the row's next part continues. */
    for (int64_t i = 0; i < a->strips; i++) {
        const ek_strip *s = a->strip + i;
        for (int l = 0; l < s->rows; l++) {
            int64_t *next = start + a->order[s->at + l], to = *next;
            *next += a->length[s->at + l];
            if (s->kind == EK_STRIP_DIAGONAL)
                restore_diagonal(a, s, l, to, index, values);
            else if (s->kind == EK_STRIP_WINDOWS)
                restore_windows(a, s, l, to, index, values);
            else
                restore_row(a, s, l, to, index, values);
        }
    }
    memmove(start + 1, start, (size_t)a->rows * sizeof *start);
    start[0] = 0;
}
