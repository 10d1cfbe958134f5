/* Second kernel: X2 and W4 in one launch, max(m, n) * outliers elements; and dequantization of W.
 *
 * W is read from the panels of the integer product, the only copy. Compile-time parameter:
 * EK_SIMD. */
#include "floats.h"
#include "panels.h"

#define ROWS 16 /* rows of X2 per task */
#define LINE 64 /* bytes per cache line */

void ek_outlier_excess(const int8_t *w, long n, long group, int32_t *excess) {
    const int32_t shift = TYPES == 2 ? 128 : 0;
    memset(excess, 0, (size_t)ek_outlier_padded(n) * sizeof *excess);
    for (long p = 0; p < group; p++)
        for (long j = 0; j < n; j++)
            excess[j] = (int32_t)((uint32_t)excess[j] + (uint32_t)(w[p * n + j] * shift));
}

ek_outlier_stored ek_outlier_stored_of(const ek_outlier_weights *weights) {
    return stored_of(weights);
}

/* EK_VL values of row p, starting at column `at` of the rows interleaved in a line. */
EK_INLINE vi row_of(const i8_value *line, long p, long at) {
    const i8_value *from = line + at * I8_GROUP;
#if I8_GROUP == 4
    const int down = (int)I8_PLACE(p % 4) * 8; /* a column's group of four is one lane */
    return i8_vector(from) << (24 - down) >> 24;
#elif I8_GROUP == 2
    vs pairs; /* of bytes */
    memcpy(&pairs, from, sizeof pairs);
    return vcast((vs)(pairs << (8 - (int)(p % 2) * 8)) >> 8, vi);
#else
    int32_t values[EK_VL];
    for (int l = 0; l < EK_VL; l++)
        values[l] = from[l * I8_GROUP + p % I8_GROUP];
    return vi_load(values);
#endif
}

/* A channel's group and its row in the group. Most weights have one group. */
typedef struct {
    long group, row;
} place;
EK_INLINE place place_of(const ek_outlier_weights *w, long channel) {
    const long group = channel < w->group ? 0 : channel / w->group;
    return (place){group, channel - group * w->group};
}

/* The I8_GROUP interleaved rows of W in panel j that include a channel; `buffer` is a buffer for
 * rows that must be unpacked. */
EK_INLINE const i8_value *line_of(const stored *s, long j, long channel, i8_value *buffer) {
    const ek_outlier_weights *w = s->weights;
    const long width = ek_panel_width(&s->side.panels, j), values = width * EK_VL * I8_GROUP;
    const place in = place_of(w, channel);
    const void *panel = panel_at(s, j, in.group);
    const long at = in.row / I8_GROUP * values;
    if (!w->is_int4)
        return (const i8_value *)panel + at;
    unpack_i4(panel, (panel_values(width, w->group) + 1) / 2, at, values, buffer);
    return buffer;
}

/* Dequantizes row `channel` of W in the columns of panel j from its line. */
EK_INLINE void dequantize_row(const stored *s, long j, long channel, const i8_value *line,
                              float *to) {
    const ek_outlier_weights *w = s->weights;
    const long columns = ek_panel_width(&s->side.panels, j) * EK_VL;
    const long first = ek_panel_start(&s->side.panels, j) * EK_VL;
    const place in = place_of(w, channel);
    const float *scale = w->scale + in.group * ek_outlier_padded(w->n) + first;
    for (long at = 0; at < columns; at += EK_VL) {
        const vi row = row_of(line, in.row, at);
        vf_store(to + at, vcast(row, vf) * vf_load(scale + at));
    }
}

/* Prefetches all rows of a panel at once, so that their memory latencies overlap. */
static void prefetch_rows(const stored *s, long j, const int32_t *channel, long count) {
    const ek_outlier_weights *w = s->weights;
    const long width = ek_panel_width(&s->side.panels, j), values = width * EK_VL * I8_GROUP;
    const long half = (panel_values(width, w->group) + 1) / 2;
    for (long p = 0; p < count; p++) {
        const place in = place_of(w, channel[p]);
        const char *from = panel_at(s, j, in.group);
        long at = in.row / I8_GROUP * values, bytes = values;
        if (w->is_int4)
            at -= at < half ? 0 : half;
        else
            at *= (long)sizeof(i8_value), bytes *= (long)sizeof(i8_value);
        for (long end = at + bytes; at < end; at += LINE)
            __builtin_prefetch(from + at);
    }
}

typedef struct {
    const ek_outlier_args *args;
    const int32_t *channel;
    long outliers, row_pieces;
    float *x2, *w4;
    int by_panels; /* W4 is [panel][outliers][columns], as tiles read it; otherwise [outliers][n] */
    const stored *weights;
} gather;

static void gather_rows(const gather *s, long row, long row_end) {
    float *to = s->x2 + row * s->outliers;
    for (; row < row_end; row++) {
        const void *x = x_row(s->args, row);
        for (long p = 0; p < s->outliers; p++)
            *to++ = x_value(x, s->channel[p], s->args->half);
    }
}

/* Dequantizes rows of W in the columns of panel j, `step` floats apart. */
static void gather_panel(const stored *s, long j, const int32_t *channel, long count, long step,
                         float *to) {
    i8_value buffer[MOST_COLUMNS * I8_GROUP];
    for (long p = 0; p < count; p++, to += step)
        dequantize_row(s, j, channel[p], line_of(s, j, channel[p], buffer), to);
}

static void gather_pieces(const void *args, long begin, long end) {
    const gather *s = args;
    for (long piece = begin; piece < end; piece++) {
        if (piece < s->row_pieces) {
            gather_rows(s, piece * ROWS, ek_min((piece + 1) * ROWS, s->args->m));
            continue;
        }
        const ek_panels *panels = &s->weights->side.panels;
        const long j = piece - s->row_pieces, o = s->outliers;
        const long first = ek_panel_start(panels, j) * EK_VL;
        const long columns = ek_panel_width(panels, j) * EK_VL;
        const long row = s->by_panels ? columns : ek_outlier_padded(s->args->weights->n);
        float *to = s->w4 + first * (s->by_panels ? o : 1);
        if (j + 1 < panels->panels)
            prefetch_rows(s->weights, j + 1, s->channel, o);
        gather_panel(s->weights, j, s->channel, o, row, to);
    }
}

static void launch(gather s, ek_pool *pool) {
    const stored weights = stored_of(s.args->weights);
    s.weights = &weights;
    const long panels = s.w4 ? weights.side.panels.panels : 0;
    ek_parallel(pool, gather_pieces, &s, s.row_pieces + panels, 1);
}

void ek_outlier_split(const ek_outlier_args *args, const int32_t *channel, long outliers, float *x2,
                      float *w4, ek_pool *pool) {
    launch((gather){args, channel, outliers, ek_ceil(args->m, ROWS), x2, w4, 1, NULL}, pool);
}

void ek_outlier_split_panel(const stored *s, const int32_t *channel, long outliers, long column,
                            float *w4) {
    const ek_panels *panels = &s->side.panels;
    const long vector = column / EK_VL, beyond = vector - panels->wider * (panels->width + 1);
    const long j =
        beyond < 0 ? vector / (panels->width + 1) : panels->wider + beyond / panels->width;
    gather_panel(s, j, channel, outliers, ek_panel_width(panels, j) * EK_VL,
                 w4 + column * outliers);
}

void ek_outlier_rows(const ek_outlier_weights *weights, const int32_t *channel, long count,
                     float *rows) {
    const ek_outlier_args nothing = {.weights = weights};
    launch((gather){&nothing, channel, count, 0, NULL, rows, 0, NULL}, NULL);
}

static void dequantize_piece(const void *args, long begin, long end) {
    const ek_outlier_block *block = args;
    const stored s = stored_of(block->weights);
    const long first = ek_panel_start(&s.side.panels, block->panel);
    i8_value buffer[MOST_COLUMNS * I8_GROUP];
    for (long j = block->panel; j < block->panel_end; j++) {
        float *to = block->to + (ek_panel_start(&s.side.panels, j) - first) * EK_VL;
        const i8_value *line = NULL;
        for (long p = begin; p < end; p++) {
            const long channel = block->row + p;
            if (!line || place_of(block->weights, channel).row % I8_GROUP == 0)
                line = line_of(&s, j, channel, buffer);
            dequantize_row(&s, j, channel, line, to + p * block->width);
        }
    }
}

void ek_outlier_dequantize(const ek_outlier_block *block, ek_pool *pool) {
    ek_parallel(pool, dequantize_piece, block, block->rows, 16);
}

void ek_outlier_widen(const ek_outlier_args *args, long from, long count, float *to) {
    for (long row = 0; row < args->m; row++)
        for (long i = 0; i < count; i++)
            *to++ = x_value(x_row(args, row), from + i, args->half);
}
