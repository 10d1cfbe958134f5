/* The second kernel: X2 and W4 in one launch, max(m, n) * outliers elements; and W as floats.
 *
 * W is read from the panels of the integer product, the only copy there is. Compile-time
 * parameter: EK_SIMD. */
#include "floats.h"
#define MR 1
#define NV 1
#define TYPES (EK_I8 == EK_I8_DOT4_US ? 2 : 1)
#include "../gemm/i8_types.h"

#define ROWS 16 /* of X2, in one piece of work */
#define LINE 64

int ek_outlier_dtype(void) {
    return TYPES == 2 ? EK_GEMM_U8 : EK_GEMM_S8;
}

void ek_outlier_excess(const int8_t *w, long n, long group, int32_t *excess) {
    const int32_t shift = TYPES == 2 ? 128 : 0;
    memset(excess, 0, (size_t)ek_outlier_padded(n) * sizeof *excess);
    for (long p = 0; p < group; p++)
        for (long j = 0; j < n; j++)
            excess[j] = (int32_t)((uint32_t)excess[j] + (uint32_t)(w[p * n + j] * shift));
}

static ek_gemm_side side_of(const ek_outlier_weights *w) {
    const ek_gemm_family *family = ek_gemm_families[ek_outlier_dtype()];
    const ek_gemm_shape shape = ek_gemm_nearest(family, w->how.mr, w->how.nr);
    const long vectors = ek_vectors(family->operands, w->n);
    return (ek_gemm_side){family->operands, 1, ek_panels_of(vectors, shape.nv)};
}

ek_panels ek_outlier_panels(const ek_outlier_weights *w) {
    return side_of(w).panels;
}

/* EK_VL values of row p of a panel, from column `at` on. */
EK_INLINE vi panel_row(const i8_value *panel, long columns, long p, long at) {
    const i8_value *from = panel + p / I8_GROUP * columns * I8_GROUP + at * I8_GROUP;
#if I8_GROUP == 4 && I8_BYTES
    const int down = (int)(p % 4) * 8; /* the group of four of a column is one lane */
    return i8_vector(from) << (24 - down) >> 24;
#elif I8_GROUP == 2
    const int down = (int)(p % 2) * 16;
    return i8_vector(from) << (16 - down) >> 16;
#else
    int32_t values[EK_VL];
    for (int l = 0; l < EK_VL; l++)
        values[l] = from[l * I8_GROUP + p % I8_GROUP];
    return vi_load(values);
#endif
}

/* Where panel j of the group that holds a channel starts. */
EK_INLINE const i8_value *panel_of(const ek_outlier_weights *w, const ek_gemm_side *side,
                                   const ek_panel_sizes *sizes, long j, long channel) {
    const size_t group = (size_t)(channel / w->group) * w->b_bytes;
    return (const i8_value *)((const char *)w->b + group + ek_panels_bytes(side, sizes, 0, j));
}

/* Row `channel` of W in the columns of one panel. */
EK_INLINE void dequantize_row(const ek_outlier_weights *w, const ek_gemm_side *side,
                              const ek_panel_sizes *sizes, long j, long channel, float *to) {
    const long columns = ek_panel_width(&side->panels, j) * EK_VL;
    const long first = ek_panel_start(&side->panels, j) * EK_VL;
    const i8_value *panel = panel_of(w, side, sizes, j, channel);
    const float *scale = w->scale + channel / w->group * ek_outlier_padded(w->n) + first;
    for (long at = 0; at < columns; at += EK_VL) {
        const vi row = panel_row(panel, columns, channel % w->group, at);
        vf_store(to + at, vcast(row, vf) * vf_load(scale + at));
    }
}

/* Asks for the rows of a panel all at once: one after the other, each would wait for memory. */
static void prefetch_rows(const ek_outlier_weights *w, const ek_gemm_side *side,
                          const ek_panel_sizes *sizes, long j, const int32_t *channel, long count) {
    const long width = ek_panel_width(&side->panels, j) * EK_VL * I8_GROUP;
    for (long p = 0; p < count; p++) {
        const long row = channel[p] % w->group / I8_GROUP * width;
        const char *from = (const char *)(panel_of(w, side, sizes, j, channel[p]) + row);
        for (long at = 0; at < width * (long)sizeof(i8_value); at += LINE)
            __builtin_prefetch(from + at);
    }
}

typedef struct {
    const ek_outlier_args *args;
    const int32_t *channel;
    long outliers, row_pieces;
    float *x2, *w4;
    int by_panels; /* W4 is [panel][outliers][columns], as tiles read it; else [outliers][n] */
    const ek_gemm_side *side;
    const ek_panel_sizes *sizes;
} gather;

static void gather_rows(const gather *s, long row, long row_end) {
    float *to = s->x2 + row * s->outliers;
    for (; row < row_end; row++) {
        const void *x = x_row(s->args, row);
        for (long p = 0; p < s->outliers; p++)
            *to++ = x_value(x, s->channel[p], s->args->half);
    }
}

static void gather_pieces(const void *args, long begin, long end) {
    const gather *s = args;
    for (long piece = begin; piece < end; piece++) {
        if (piece < s->row_pieces) {
            gather_rows(s, piece * ROWS, ek_min((piece + 1) * ROWS, s->args->m));
            continue;
        }
        const ek_outlier_weights *w = s->args->weights;
        const long j = piece - s->row_pieces, o = s->outliers;
        const long first = ek_panel_start(&s->side->panels, j) * EK_VL;
        const long columns = ek_panel_width(&s->side->panels, j) * EK_VL;
        const long row = s->by_panels ? columns : ek_outlier_padded(w->n);
        float *to = s->w4 + first * (s->by_panels ? o : 1);
        if (j + 1 < s->side->panels.panels)
            prefetch_rows(w, s->side, s->sizes, j + 1, s->channel, o);
        for (long p = 0; p < o; p++, to += row)
            dequantize_row(w, s->side, s->sizes, j, s->channel[p], to);
    }
}

static void launch(gather s, ek_pool *pool) {
    const ek_gemm_side side = side_of(s.args->weights);
    const ek_panel_sizes sizes = ek_panel_sizes_of(&side, s.args->weights->group);
    s.side = &side, s.sizes = &sizes;
    ek_parallel(pool, gather_pieces, &s, s.row_pieces + (s.w4 ? side.panels.panels : 0), 1);
}

void ek_outlier_split(const ek_outlier_args *args, const int32_t *channel, long outliers, float *x2,
                      float *w4, ek_pool *pool) {
    launch((gather){args, channel, outliers, ek_ceil(args->m, ROWS), x2, w4, 1, NULL, NULL}, pool);
}

void ek_outlier_split_panel(const ek_outlier_weights *weights, const int32_t *channel,
                            long outliers, long column, float *w4) {
    const ek_gemm_side side = side_of(weights);
    const ek_panel_sizes sizes = ek_panel_sizes_of(&side, weights->group);
    const ek_panels *panels = &side.panels;
    const long vector = column / EK_VL, beyond = vector - panels->wider * (panels->width + 1);
    const long j =
        beyond < 0 ? vector / (panels->width + 1) : panels->wider + beyond / panels->width;
    float *to = w4 + column * outliers;
    for (long p = 0; p < outliers; p++, to += ek_panel_width(panels, j) * EK_VL)
        dequantize_row(weights, &side, &sizes, j, channel[p], to);
}

void ek_outlier_rows(const ek_outlier_weights *weights, const int32_t *channel, long count,
                     float *rows) {
    const ek_outlier_args nothing = {.weights = weights};
    launch((gather){&nothing, channel, count, 0, NULL, rows, 0, NULL, NULL}, NULL);
}

static void dequantize_piece(const void *args, long begin, long end) {
    const ek_outlier_block *block = args;
    const ek_gemm_side side = side_of(block->weights);
    const ek_panel_sizes sizes = ek_panel_sizes_of(&side, block->weights->group);
    const long first = ek_panel_start(&side.panels, block->panel);
    for (long j = block->panel; j < block->panel_end; j++) {
        float *to = block->to + (ek_panel_start(&side.panels, j) - first) * EK_VL;
        for (long p = begin; p < end; p++)
            dequantize_row(block->weights, &side, &sizes, j, block->row + p, to + p * block->width);
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
