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

/* Row `channel` of W in the columns of one panel. */
EK_INLINE void dequantize_row(const ek_outlier_weights *w, const ek_gemm_side *side,
                              const ek_panel_sizes *sizes, long j, long channel, float *to) {
    const long group = channel / w->group, columns = ek_panel_width(&side->panels, j) * EK_VL;
    const long first = ek_panel_start(&side->panels, j) * EK_VL;
    const char *panel =
        (const char *)w->b + (size_t)group * w->b_bytes + ek_panels_bytes(side, sizes, 0, j);
    const float *scale = w->scale + group * ek_outlier_padded(w->n) + first;
    for (long at = 0; at < columns; at += EK_VL) {
        const vi row = panel_row((const i8_value *)panel, columns, channel % w->group, at);
        vf_store(to + at, vcast(row, vf) * vf_load(scale + at));
    }
}

typedef struct {
    const ek_outlier_args *args;
    const int32_t *channel;
    long outliers, row_pieces;
    float *x2, *w4;
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
        const long j = piece - s->row_pieces;
        float *to = s->w4 + ek_panel_start(&s->side->panels, j) * EK_VL;
        for (long p = 0; p < s->outliers; p++, to += ek_outlier_padded(w->n))
            dequantize_row(w, s->side, s->sizes, j, s->channel[p], to);
    }
}

void ek_outlier_split(const ek_outlier_args *args, const int32_t *channel, long outliers, float *x2,
                      float *w4, ek_pool *pool) {
    const ek_gemm_side side = side_of(args->weights);
    const ek_panel_sizes sizes = ek_panel_sizes_of(&side, args->weights->group);
    const gather s = {args, channel, outliers, ek_ceil(args->m, ROWS), x2, w4, &side, &sizes};
    ek_parallel(pool, gather_pieces, &s, s.row_pieces + side.panels.panels, 1);
}

void ek_outlier_rows(const ek_outlier_weights *weights, const int32_t *channel, long count,
                     float *rows) {
    const ek_outlier_args nothing = {.weights = weights};
    ek_outlier_split(&nothing, channel, count, NULL, rows, NULL);
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
