/* Third kernel: converts sums of the integer product to Y and adds X2 . W4.
 *
 * Compile-time parameter: EK_SIMD. */
#include "../kernel.h"
#include "parts.h"

/* `rows` x `vectors` of C starting at (i, j) of the tile; the last vector has `last` columns. */
EK_INLINE void merge(const ek_outlier_merge *g, const ek_gemm_sums *s, long i, const int rows,
                     long j, const int vectors, long last) {
    const long column = s->column + j, row = s->row + i;
    vf y[4][2];
    EK_UNROLL
    for (int v = 0; v < vectors; v++) {
        const vf scale = vf_load(g->column_scale + column + v * EK_VL);
        const vi excess = vi_load(g->excess + column + v * EK_VL);
        EK_UNROLL
        for (int r = 0; r < rows; r++) {
            const vi sum = vi_load(s->sums + (i + r) * s->width + j + v * EK_VL);
            const vi exact = (vi)((vu)sum - (vu)excess);
            y[r][v] = vcast(exact, vf) * vf_splat(g->row_scale[row + r]) * scale;
        }
    }
    const float *x2 = g->x2 + row * g->outliers, *w4 = g->w4 + s->column * g->outliers + j;
    for (long p = 0; p < g->outliers; p++, w4 += s->width) {
        EK_UNROLL
        for (int v = 0; v < vectors; v++) {
            const vf w = vf_load(w4 + v * EK_VL);
            EK_UNROLL
            for (int r = 0; r < rows; r++)
                y[r][v] = vf_fma(vf_splat(x2[r * g->outliers + p]), w, y[r][v]);
        }
    }
    EK_UNROLL
    for (int r = 0; r < rows; r++) {
        EK_UNROLL
        for (int v = 0; v < vectors; v++) {
            float *c = (float *)s->c + (i + r) * s->c_row + j + v * EK_VL;
            const int part = v == vectors - 1 && last < EK_VL;
            vf sum = y[r][v];
            if (g->add)
                sum += part ? vf_load_n(c, last) : vf_load(c);
            if (part)
                vf_store_n(c, sum, last);
            else
                vf_store(c, sum);
        }
    }
}

EK_INLINE void merge_rows(const ek_outlier_merge *g, const ek_gemm_sums *s, long i,
                          const int rows) {
    long j = 0;
    for (; j + 2 * EK_VL <= s->columns; j += 2 * EK_VL)
        merge(g, s, i, rows, j, 2, EK_VL);
    for (; j < s->columns; j += EK_VL)
        merge(g, s, i, rows, j, 1, ek_min(s->columns - j, EK_VL));
}

void ek_outlier_merge_tile(const void *args, const ek_gemm_sums *s) {
    const ek_outlier_merge *g = args;
    if (g->fill && s->row == 0)
        ek_outlier_split_panel(g->stored, g->channel, g->outliers, s->column, g->w4);
    long i = 0;
    for (; i + 4 <= s->rows; i += 4)
        merge_rows(g, s, i, 4);
    for (; i + 2 <= s->rows; i += 2)
        merge_rows(g, s, i, 2);
    if (i < s->rows)
        merge_rows(g, s, i, 1);
}
