/* Marks, X1, and X2 . W4. Compile-time parameters: NAME, EK_SIMD. */
#include "layer.h"
#include "parts.h"

#define COLUMNS 64 /* of W4 at once */
#define CHANNELS 64

/* The value of W for a channel and a column. */
EK_INLINE float weight_at(const ek_outlier_layer_args *l, long channel, long column) {
    const long of = channel / l->slice, k = channel % l->slice;
    const long panel = column / l->columns, first = panel * l->columns;
    const long vectors = (l->n + EK_VL - 1) / EK_VL * EK_VL;
    const long width = ek_min(l->columns, vectors - first);
    const long at =
        first * l->depth + (k / l->group * width + column - first) * l->group + k % l->group;
    const char *slice = (const char *)l->weights + of * l->slice_bytes;
    const int value = l->wide ? ((const int16_t *)slice)[at] : ((const int8_t *)slice)[at];
    return (float)value * l->scale[of * l->n_padded + column];
}

/* Tasks: blocks of columns. */
static void add_outliers(const void *args, long begin, long end) {
    const ek_outlier_layer_args *l = args;
    float w4[CHANNELS][COLUMNS];
    for (long block = begin; block < end; block++) {
        const long first = block * COLUMNS, columns = ek_min(COLUMNS, l->n - first);
        for (long from = 0; from < *l->count; from += CHANNELS) {
            const long channels = ek_min(CHANNELS, *l->count - from);
            for (long o = 0; o < channels; o++)
                for (long j = 0; j < columns; j++)
                    w4[o][j] = weight_at(l, l->channel[from + o], first + j);
            for (long row = 0; row < l->m; row++) {
                float *restrict y = l->y + row * l->n + first, sums[COLUMNS] = {0};
                if (from)
                    memcpy(sums, y, (size_t)columns * sizeof *y);
                for (long o = 0; o < channels; o++) {
                    const float x = l->x[row * l->k + l->channel[from + o]];
                    for (long j = 0; j < columns; j++)
                        sums[j] += x * w4[o][j];
                }
                memcpy(y, sums, (size_t)columns * sizeof *y);
            }
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
    if (count)
        ek_parallel(pool, add_outliers, l, (l->n + COLUMNS - 1) / COLUMNS, 1);
}
