/* Products of a few rows with a matrix that is read once, in place, as when a token's attention
 * reads its caches: packing would cost more than the product.
 *
 * Compile-time parameters: NAME, EK_SIMD, MR (rows of a), SIDE (columns or rows of b read together:
 * sums of dot products, or factors of rows, stay in registers); BY_COLUMNS: columns of b are
 * contiguous, and yield dot products (otherwise rows are contiguous, and are accumulated);
 * PREFETCH_DISTANCE: prefetch distance for b in bytes, 0: none. */
#include "streamed.h"

#define LINE 16 /* floats */
#define LINE_VECTORS (LINE / EK_VL)

/* Prefetches the lines PREFETCH_DISTANCE bytes ahead in each of the `count` streams. */
EK_INLINE void prefetch(const int count, const float *b, long step) {
    EK_UNROLL
    for (int i = 0; PREFETCH_DISTANCE && i < count; i++)
        __builtin_prefetch((const char *)(b + i * step) + PREFETCH_DISTANCE);
}

#ifdef BY_COLUMNS
EK_INLINE void multiply(const int count, const ek_streamed_args *g, const float *a, const float *b,
                        vf acc[MR][SIDE]) {
    vf x[MR];
    EK_UNROLL
    for (int i = 0; i < MR; i++)
        x[i] = vf_load(a + i * g->a_row);
    EK_UNROLL
    for (int j = 0; j < count; j++) {
        const vf column = vf_load(b + j * g->b_step);
        EK_UNROLL
        for (int i = 0; i < MR; i++)
            acc[i][j] = vf_fma(x[i], column, acc[i][j]);
    }
}

/* Dot products of `count` columns. */
EK_INLINE void columns(const int count, const ek_streamed_args *g, const float *a, const float *b,
                       float *y) {
    vf acc[MR][SIDE] = {0};
    long p = 0;
    for (; p + LINE <= g->k; p += LINE) {
        prefetch(count, b + p, g->b_step);
        EK_UNROLL
        for (int v = 0; v < LINE_VECTORS; v++)
            multiply(count, g, a + p + v * EK_VL, b + p + v * EK_VL, acc);
    }
    for (; p + EK_VL <= g->k; p += EK_VL)
        multiply(count, g, a + p, b + p, acc);
    float sums[MR][SIDE];
    EK_UNROLL
    for (int i = 0; i < MR; i++) {
        EK_UNROLL
        for (int j = 0; j < count; j++)
            sums[i][j] = vf_sum(acc[i][j]);
    }
    for (; p < g->k; p++) {
        EK_UNROLL
        for (int i = 0; i < MR; i++) {
            EK_UNROLL
            for (int j = 0; j < count; j++)
                sums[i][j] += a[i * g->a_row + p] * b[j * g->b_step + p];
        }
    }
    EK_UNROLL
    for (int i = 0; i < MR; i++) {
        EK_UNROLL
        for (int j = 0; j < count; j++)
            y[i * g->y_row + j] = g->scale * sums[i][j];
    }
}

static void product(const ek_streamed_args *g, const float *a, const float *b, float *y,
                    long width) {
    long j = 0;
    for (; j + SIDE <= width; j += SIDE)
        columns(SIDE, g, a, b + j * g->b_step, y + j);
    for (; j < width; j++)
        columns(1, g, a, b + j * g->b_step, y + j);
}
#else
/* y += products of `count` rows of b, columns [j, j + EK_VL). */
EK_INLINE void multiply(const int count, const ek_streamed_args *g, vf x[MR][SIDE], const float *b,
                        float *y) {
    vf acc[MR];
    EK_UNROLL
    for (int i = 0; i < MR; i++)
        acc[i] = vf_load(y + i * g->y_row);
    EK_UNROLL
    for (int p = 0; p < count; p++) {
        const vf row = vf_load(b + p * g->b_step);
        EK_UNROLL
        for (int i = 0; i < MR; i++)
            acc[i] = vf_fma(x[i][p], row, acc[i]);
    }
    EK_UNROLL
    for (int i = 0; i < MR; i++)
        vf_store(y + i * g->y_row, acc[i]);
}

EK_INLINE void rows(const int count, const ek_streamed_args *g, const float *a, const float *b,
                    float *y, long width) {
    vf x[MR][SIDE];
    EK_UNROLL
    for (int i = 0; i < MR; i++) {
        EK_UNROLL
        for (int p = 0; p < count; p++)
            x[i][p] = vf_splat(a[i * g->a_row + p]);
    }
    long j = 0;
    for (; j + LINE <= width; j += LINE) {
        prefetch(count, b + j, g->b_step);
        EK_UNROLL
        for (int v = 0; v < LINE_VECTORS; v++)
            multiply(count, g, x, b + j + v * EK_VL, y + j + v * EK_VL);
    }
    for (; j + EK_VL <= width; j += EK_VL)
        multiply(count, g, x, b + j, y + j);
    for (; j < width; j++) {
        EK_UNROLL
        for (int i = 0; i < MR; i++) {
            EK_UNROLL
            for (int p = 0; p < count; p++)
                y[i * g->y_row + j] += a[i * g->a_row + p] * b[p * g->b_step + j];
        }
    }
}

static void product(const ek_streamed_args *g, const float *a, const float *b, float *y,
                    long width) {
    for (int i = 0; i < MR; i++)
        memset(y + i * g->y_row, 0, (size_t)width * sizeof *y);
    long p = 0;
    for (; p + SIDE <= g->k; p += SIDE)
        rows(SIDE, g, a + p, b + p * g->b_step, y, width);
    for (; p < g->k; p++)
        rows(1, g, a + p, b + p * g->b_step, y, width);
    for (int i = 0; i < MR && g->scale != 1; i++) {
        float *to = y + i * g->y_row;
        for (long j = 0; j < width; j++)
            to[j] *= g->scale;
    }
}
#endif

/* Offset of a matrix in its stack. */
EK_INLINE long offset(const ek_streamed_args *g, long index, const long *stride) {
    long at = 0;
    for (int d = EK_MATMUL_DIMS - 1; d >= 0; d--) {
        at += index % g->dim[d] * stride[d];
        index /= g->dim[d];
    }
    return at;
}

/* Task: a matrix x a panel. */
void NAME(const void *args, long begin, long end) {
    const ek_streamed_args *g = args;
    for (long t = begin; t < end; t++) {
        const long stack = t / g->panels, column = t % g->panels * g->width;
#ifdef BY_COLUMNS
        const long from = column * g->b_step;
#else
        const long from = column;
#endif
        product(g, g->a + offset(g, stack, g->a_stride),
                g->b + offset(g, stack, g->b_stride) + from,
                g->y + offset(g, stack, g->y_stride) + column, ek_min(g->width, g->n - column));
    }
}
