/* Marks, X1, and X2 . W4. Compile-time parameters: NAME, EK_SIMD. */
#include "layer.h"
#include "parts.h"

#define MR 4 /* of a tile of floats */
#define NV 2
#define COLUMNS (NV * EK_VL)
#define CHANNELS EK_OUTLIER_CHANNELS
#define PIECE 512 /* rows that a task has: so many make up for a block of W4 */
#define GRAIN 16  /* rows of X2 that are worth waking a thread for */
#include "../gemm/f32_tile.h"
#include "../gemm/i8_tile.h"

/* The bytes at p[part], p[part + I8_GROUP], ... of packed weights, without a sign. */
EK_INLINE vi bytes_at(const uint8_t *p, long part) {
#if I8_GROUP == 4
    return (vi)((vu)i8_vector(p) >> (int)(8 * part)) & 255;
#elif I8_GROUP == 1 && EK_VL > 1
    typedef uint8_t bytes __attribute__((vector_size(EK_VL)));
    bytes v;
    memcpy(&v, p, sizeof v);
    (void)part;
    return vcast(v, vi);
#else
    int32_t t[EK_VL];
    EK_UNROLL
    for (int i = 0; i < EK_VL; i++)
        t[i] = p[part + i * I8_GROUP];
    return vi_load(t);
#endif
}

/* The same values of a packed panel of 4 bits, `half` of them in either half of the bytes. */
EK_INLINE vi halves_at(const uint8_t *p, long half, long at, long part) {
    if (at + EK_VL * I8_GROUP <= half)
        return (bytes_at(p + at, part) & 15) - 8;
    if (at >= half)
        return (bytes_at(p + at - half, part) >> 4) - 8;
    int32_t t[EK_VL];
    for (int i = 0; i < EK_VL; i++) {
        const long one = at + part + i * I8_GROUP;
        t[i] = (one < half ? p[one] & 15 : p[one - half] >> 4) - 8;
    }
    return vi_load(t);
}

/* The values of W for a channel and EK_VL columns. */
EK_INLINE vi weights_at(const ek_outlier_layer_args *l, long channel, long column) {
    const long of = channel / l->slice, first = of / l->slices * l->slices;
    const long depth = ek_min(l->slices, l->k / l->slice - first) * l->depth;
    const long k = (of - first) * l->depth + channel % l->slice, part = k % I8_GROUP;
    const long panel = column / l->columns, start = panel * l->columns;
    const long width = ek_min(l->columns, l->n_padded - start);
    const long at = (k / I8_GROUP * width + column - start) * I8_GROUP;
    const char *weights = (const char *)l->weights + first / l->slices * l->part_bytes;
    if (l->bits == 4) {
        const uint8_t *packed = (const uint8_t *)weights + panel * ((l->columns * depth + 1) / 2);
        return halves_at(packed, (width * depth + 1) / 2, at, part);
    }
    if (l->bits == 8)
        return (bytes_at((const uint8_t *)weights + start * depth + at, part) ^ 128) - 128;
    int32_t t[EK_VL];
    for (int i = 0; i < EK_VL; i++)
        t[i] = ((const int16_t *)weights)[start * depth + at + part + i * I8_GROUP];
    return vi_load(t);
}

/* Some of the outliers: channels of l->channel from `from` on. */
typedef struct {
    const ek_outlier_layer_args *l;
    long from, channels;
} outliers;

/* X2: rows [begin, end). */
static void gather_rows(const void *args, long begin, long end) {
    const outliers *s = args;
    const int32_t *channel = s->l->channel + s->from;
    for (long row = begin; row < end; row++)
        for (long o = 0; o < s->channels; o++)
            s->l->x2[row * CHANNELS + o] = s->l->x[row * s->l->k + channel[o]];
}

/* W4: columns [column, column + COLUMNS). */
static void gather_weights(const outliers *s, long column, float *w4) {
    const ek_outlier_layer_args *l = s->l;
    for (long o = 0; o < s->channels; o++)
        for (long at = column; at < column + COLUMNS; at += EK_VL, w4 += EK_VL) {
            const long channel = l->channel[s->from + o];
            const long of = channel / l->slice * l->n_padded + at;
            vf v = vf_splat(0);
            if (at < l->n) {
                const vf scale = l->scale ? vf_load(l->scale + of) : vf_from_bf16(l->scale16 + of);
                v = vcast(weights_at(l, channel, at), vf) * scale;
            }
            vf_store(w4, v);
        }
}

/* Rows [row, row + rows) of y += X2 . W4; the first outliers start from the residual, if there is
 * one. */
EK_INLINE void add_tile(const outliers *s, const int rows, long row, long column, const float *w4) {
    const ek_outlier_layer_args *l = s->l;
    const float *start = s->from ? l->y : l->residual, *x[MR];
    vf sums[MR][NV];
    EK_UNROLL
    for (int i = 0; i < rows; i++) {
        x[i] = l->x2 + (row + i) * CHANNELS;
        EK_UNROLL
        for (int j = 0; j < NV; j++) {
            const long at = column + j * EK_VL, left = l->n - at;
            sums[i][j] = vf_splat(0);
            if (start && left > 0) {
                const float *from = start + (row + i) * l->n + at;
                sums[i][j] = left >= EK_VL ? vf_load(from) : vf_load_n(from, left);
            }
        }
    }
    f32_rows(rows, NV, 0, sums, x, (f32_columns){.at = w4, .row = COLUMNS}, s->channels);
    EK_UNROLL
    for (int i = 0; i < rows * NV; i++) {
        const long at = column + i % NV * EK_VL, left = l->n - at;
        float *to = l->y + (row + i / NV) * l->n + at;
        if (left >= EK_VL)
            vf_store(to, sums[i / NV][i % NV]);
        else if (left > 0)
            vf_store_n(to, sums[i / NV][i % NV], left);
    }
}

/* Tasks: pieces of rows by blocks of columns. */
static void add_outliers(const void *args, long begin, long end) {
    const outliers *s = args;
    const ek_outlier_layer_args *l = s->l;
    const long pieces = (l->m + PIECE - 1) / PIECE;
    float w4[CHANNELS * COLUMNS] __attribute__((aligned(64)));
    for (long task = begin; task < end; task++) {
        const long column = task / pieces * COLUMNS, first = task % pieces * PIECE;
        const long until = ek_min(first + PIECE, l->m);
        gather_weights(s, column, w4);
        long row = first;
        for (; row + MR <= until; row += MR)
            add_tile(s, MR, row, column, w4);
        for (; row < until; row++)
            add_tile(s, 1, row, column, w4);
    }
}

/* y = residual + X2 . W4, some outliers at a time. */
static void multiply_outliers(const ek_outlier_layer_args *l, ek_pool *pool) {
    const long blocks = (l->n + COLUMNS - 1) / COLUMNS, pieces = (l->m + PIECE - 1) / PIECE;
    for (long from = 0; from == 0 || from < *l->count; from += CHANNELS) {
        const outliers some = {l, from, ek_min(CHANNELS, *l->count - from)};
        if (some.channels)
            ek_parallel(pool, gather_rows, &some, l->m, GRAIN);
        ek_parallel(pool, add_outliers, &some, blocks * pieces, 1);
    }
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
    ek_outlier_quantize(&product, count ? l->marks : NULL, l->x1, l->row_scale, pool);
    if (count || l->residual)
        multiply_outliers(l, pool);
}
