/* Marks, X1, and X2 . W4. Compile-time parameters: NAME, EK_SIMD. */
#include "layer.h"
#include "parts.h"

#define VECTORS 2 /* of columns of a tile */
#define COLUMNS (VECTORS * EK_VL)
#define ROWS 4
#define CHANNELS 64 /* of W4 at once */
#define PIECE 512   /* rows that a task has: so many make up for a block of W4 */

/* The value of W for a channel and a column. */
EK_INLINE float weight_at(const ek_outlier_layer_args *l, long channel, long column) {
    const long of = channel / l->slice, k = channel % l->slice;
    const long panel = column / l->columns, first = panel * l->columns;
    const long vectors = (l->n + EK_VL - 1) / EK_VL * EK_VL;
    const long width = ek_min(l->columns, vectors - first);
    const long at = (k / l->group * width + column - first) * l->group + k % l->group;
    const char *slice = (const char *)l->weights + of * l->slice_bytes;
    int value;
    if (l->bits == 4) {
        const long half = (width * l->depth + 1) / 2;
        const uint8_t *packed = (const uint8_t *)slice + panel * ((l->columns * l->depth + 1) / 2);
        value = (at < half ? packed[at] & 15 : packed[at - half] >> 4) - 8;
    } else if (l->bits == 8) {
        value = ((const int8_t *)slice)[first * l->depth + at];
    } else {
        value = ((const int16_t *)slice)[first * l->depth + at];
    }
    return (float)value * l->scale[of * l->n_padded + column];
}

/* Rows [row, row + rows) of y += X2 . W4 for some of the outliers; the first ones start from the
 * residual, if there is one. */
EK_INLINE void add_tile(const ek_outlier_layer_args *l, const int rows, long row, long column,
                        const int32_t *channel, long channels, const float *w4) {
    const float *start = channel == l->channel ? l->residual : l->y;
    vf sums[ROWS][VECTORS];
    EK_UNROLL
    for (int i = 0; i < rows * VECTORS; i++) {
        const long at = column + i % VECTORS * EK_VL, left = l->n - at;
        sums[i / VECTORS][i % VECTORS] = vf_splat(0);
        if (start && left > 0) {
            const float *from = start + (row + i / VECTORS) * l->n + at;
            sums[i / VECTORS][i % VECTORS] = left >= EK_VL ? vf_load(from) : vf_load_n(from, left);
        }
    }
    for (long o = 0; o < channels; o++, w4 += COLUMNS) {
        EK_UNROLL
        for (int i = 0; i < rows; i++) {
            const vf x = vf_splat(l->x[(row + i) * l->k + channel[o]]);
            EK_UNROLL
            for (int j = 0; j < VECTORS; j++)
                sums[i][j] += x * vf_load(w4 + j * EK_VL);
        }
    }
    EK_UNROLL
    for (int i = 0; i < rows * VECTORS; i++) {
        const long at = column + i % VECTORS * EK_VL, left = l->n - at;
        float *to = l->y + (row + i / VECTORS) * l->n + at;
        if (left >= EK_VL)
            vf_store(to, sums[i / VECTORS][i % VECTORS]);
        else if (left > 0)
            vf_store_n(to, sums[i / VECTORS][i % VECTORS], left);
    }
}

/* Tasks: pieces of rows by blocks of columns. */
static void add_outliers(const void *args, long begin, long end) {
    const ek_outlier_layer_args *l = args;
    const long pieces = (l->m + PIECE - 1) / PIECE;
    float w4[CHANNELS * COLUMNS] __attribute__((aligned(64)));
    for (long task = begin; task < end; task++) {
        const long column = task / pieces * COLUMNS, first = task % pieces * PIECE;
        const long until = ek_min(first + PIECE, l->m);
        for (long from = 0; from == 0 || from < *l->count; from += CHANNELS) {
            const long channels = ek_min(CHANNELS, *l->count - from);
            const int32_t *channel = l->channel + from;
            for (long o = 0; o < channels; o++)
                for (long j = 0; j < COLUMNS; j++)
                    w4[o * COLUMNS + j] =
                        column + j < l->n ? weight_at(l, channel[o], column + j) : 0;
            long row = first;
            for (; row + ROWS <= until; row += ROWS)
                add_tile(l, ROWS, row, column, channel, channels, w4);
            for (; row < until; row++)
                add_tile(l, 1, row, column, channel, channels, w4);
        }
    }
}

static void cut_into_slices(const ek_outlier_layer_args *l) {
    const long slices = l->k / l->slice;
    for (long s = 0; s < slices && slices > 1; s++)
        for (long row = 0; row < l->m; row++)
            memcpy(l->x1 + (s * l->m + row) * l->slice, l->rows + row * l->k + s * l->slice,
                   (size_t)l->slice);
}

void NAME(const void *args, ek_pool *pool) {
    const ek_outlier_layer_args *l = args;
    const ek_outlier_weights weights = {.n = l->n, .k = l->k, .group = l->k};
    const ek_outlier_args product = {.weights = &weights,
                                     .m = l->m,
                                     .x_row = l->k,
                                     .x = l->x,
                                     .threshold = l->threshold,
                                     .rows_per_scale = 1};
    int32_t limit, count = 0;
    memcpy(&limit, &l->threshold, sizeof limit);
    ek_outlier_scan(&product, limit, l->marks, pool);
    for (long at = 0; at < l->k; at += 32)
        for (uint32_t word = l->marks[at / 32]; word; word &= word - 1)
            l->channel[count++] = (int32_t)(at + __builtin_ctz(word));
    *l->count = count;
    ek_outlier_quantize(&product, count ? l->marks : NULL, l->rows, l->row_scale, pool);
    cut_into_slices(l);
    const long blocks = (l->n + COLUMNS - 1) / COLUMNS, pieces = (l->m + PIECE - 1) / PIECE;
    if (count || l->residual)
        ek_parallel(pool, add_outliers, l, blocks * pieces, 1);
}
