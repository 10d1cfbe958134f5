/* Marks outliers and computes X1 and X2 . W4. Compile-time parameters: NAME, EK_SIMD. */
#include "layer.h"
#include "parts.h"

#define MR 4 /* of a float tile */
#define NV 2
#define COLUMNS (NV * EK_VL)
#define CHANNELS EK_OUTLIER_CHANNELS
#define PIECE 512 /* rows per task: enough to amortize a block of W4 */
#define GRAIN 16  /* rows of X2 worth waking a thread for */
#define BLOCK 256 /* channels per task that finds maxima */
#include "floats.h"
#include "../gemm/f32_tile.h"
#include "../gemm/i8_tile.h"
#include "stream.h"

/* The bytes at p[part], p[part + I8_GROUP], ... of packed weights, zero-extended. */
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

/* The same for a packed 4-bit panel with `half` values in either half of its bytes. */
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

/* Position of an outlier channel in W and its scales, precomputed: per vector of columns, the
 * divisions would take longer than the products. */
typedef struct {
    const char *weights; /* the part of k that contains it */
    long scale;          /* start of its n_padded scales */
    long depth;          /* rows per panel of that part */
    long step, part;     /* its group of k within a panel, and its position in the group */
    long slice;          /* for streamed weights: of k, and the place in it */
    stream_place in;
} place;

/* A batch of outliers: channels of l->channel starting at `from`. */
typedef struct {
    const ek_outlier_layer_args *l;
    long from, channels;
    place places[CHANNELS];
} outliers;

static place place_of(const ek_outlier_layer_args *l, long channel) {
    const long slice = channel / l->slice, part = slice / l->slices, first = part * l->slices;
    const long k = (slice - first) * l->depth + channel - slice * l->slice;
    return (place){.weights = (const char *)l->weights + part * l->part_bytes,
                   .scale = slice * l->n_padded,
                   .depth = ek_min(l->slices, l->k / l->slice - first) * l->depth,
                   .step = k / I8_GROUP,
                   .part = I8_PLACE(k % I8_GROUP),
                   .slice = slice,
                   .in = l->streamed ? stream_place_of(channel % l->slice, l->depth, l->bits)
                                     : (stream_place){0}};
}

/* The panel that contains EK_VL columns of W. */
typedef struct {
    long index, start, width, column; /* column: relative to the panel's start */
} panel;

static panel panel_of(const ek_outlier_layer_args *l, long column) {
    const long index = column / l->columns, start = index * l->columns;
    return (panel){index, start, ek_min(l->columns, l->n_padded - start), column - start};
}

/* Values of W for a channel and EK_VL columns. */
EK_INLINE vi weights_at(const ek_outlier_layer_args *l, const place *of, const panel *in) {
    const long at = (of->step * in->width + in->column) * I8_GROUP;
    if (l->bits == 4) {
        const long stride = (l->columns * of->depth + 1) / 2;
        return halves_at((const uint8_t *)of->weights + in->index * stride,
                         (in->width * of->depth + 1) / 2, at, of->part);
    }
    const uint8_t *bytes = (const uint8_t *)of->weights + in->start * of->depth + at;
    return (bytes_at(bytes, of->part) ^ 128) - 128;
}

/* Streamed values of W for a channel and EK_VL columns, times their scales. */
EK_INLINE vf streamed_at(const ek_outlier_layer_args *l, const place *of, const panel *in) {
    const long values = stream_values(in->width, l->depth, l->bits), groups = l->k / l->slice;
    const long block = stream_block(in->width, l->depth, l->bits, l->scales);
    const uint8_t *w = (const uint8_t *)l->weights + of->slice * block +
                       groups * stream_full(in->start, l->depth, l->bits, l->scales);
    const uint8_t *scale = w + values + in->column * stream_scale_bytes(l->scales);
    w += of->in.step * stream_step(in->width, l->bits);
    const vi value = stream_values_at(w, in->width, in->column, l->bits, &of->in);
    return vcast(value, vf) * stream_scales(l->scales, scale) * stream_unit(l->scales);
}

/* Gathers rows [begin, end) of X2. */
static void gather_rows(const void *args, long begin, long end) {
    const outliers *s = args;
    const int32_t *channel = s->l->channel + s->from;
    for (long row = begin; row < end; row++)
        for (long o = 0; o < s->channels; o++)
            s->l->x2[row * CHANNELS + o] = s->l->x[row * s->l->k + channel[o]];
}

/* Gathers columns [column, column + COLUMNS) of W4. */
static void gather_weights(const outliers *s, long column, float *w4) {
    const ek_outlier_layer_args *l = s->l;
    EK_UNROLL
    for (int j = 0; j < NV; j++) {
        const long at = column + j * EK_VL;
        const panel in = panel_of(l, at);
        for (long o = 0; o < s->channels; o++) {
            const place *of = s->places + o;
            vf v = vf_splat(0);
            if (at < l->n && l->streamed) {
                v = streamed_at(l, of, &in);
            } else if (at < l->n) {
                const long to = of->scale + at;
                const vf scale = l->scale ? vf_load(l->scale + to) : vf_from_bf16(l->scale16 + to);
                v = vcast(weights_at(l, of, &in), vf) * scale;
            }
            vf_store(w4 + o * COLUMNS + j * EK_VL, v);
        }
    }
}

/* Rows [row, row + rows) of y += X2 . W4; the first batch starts from the residual, if any.
 * `full`: all columns are inside y. */
EK_INLINE void add_tile(const outliers *s, const int rows, const int full, long row, long column,
                        const float *w4) {
    const ek_outlier_layer_args *l = s->l;
    const long pitch = l->n, left = pitch - column;
    const float *start = s->from ? l->y : l->residual, *x[MR];
    vf sums[MR][NV];
    EK_UNROLL
    for (int i = 0; i < rows; i++)
        x[i] = l->x2 + (row + i) * CHANNELS;
    EK_UNROLL
    for (int i = 0; i < rows * NV; i++)
        sums[i / NV][i % NV] = vf_splat(0);
    if (start) {
        const float *from = start + row * pitch + column;
        EK_UNROLL
        for (int i = 0; i < rows * NV; i++) {
            const long at = i % NV * EK_VL;
            if (full || left - at >= EK_VL)
                sums[i / NV][i % NV] = vf_load(from + i / NV * pitch + at);
            else if (left > at)
                sums[i / NV][i % NV] = vf_load_n(from + i / NV * pitch + at, left - at);
        }
    }
    f32_rows(rows, NV, 0, sums, x, (f32_columns){.at = w4, .row = COLUMNS}, s->channels);
    float *to = l->y + row * pitch + column;
    EK_UNROLL
    for (int i = 0; i < rows * NV; i++) {
        const long at = i % NV * EK_VL;
        if (full || left - at >= EK_VL)
            vf_store(to + i / NV * pitch + at, sums[i / NV][i % NV]);
        else if (left > at)
            vf_store_n(to + i / NV * pitch + at, sums[i / NV][i % NV], left - at);
    }
}

EK_INLINE void add_rows(const outliers *s, const int full, long row, long until, long column,
                        const float *w4) {
    for (; row + MR <= until; row += MR)
        add_tile(s, MR, full, row, column, w4);
    for (; row < until; row++)
        add_tile(s, 1, full, row, column, w4);
}

/* Task: a piece of rows x a block of columns. */
static void add_outliers(const void *args, long begin, long end) {
    const outliers *s = args;
    const ek_outlier_layer_args *l = s->l;
    const long pieces = (l->m + PIECE - 1) / PIECE;
    float w4[CHANNELS * COLUMNS] __attribute__((aligned(64)));
    for (long task = begin; task < end; task++) {
        const long column = task / pieces * COLUMNS, first = task % pieces * PIECE;
        const long until = ek_min(first + PIECE, l->m);
        gather_weights(s, column, w4);
        if (column + COLUMNS <= l->n)
            add_rows(s, 1, first, until, column, w4);
        else
            add_rows(s, 0, first, until, column, w4);
    }
}

/* y = residual + X2 . W4, one batch of outliers at a time. */
static void multiply_outliers(const ek_outlier_layer_args *l, ek_pool *pool) {
    const long blocks = (l->n + COLUMNS - 1) / COLUMNS, pieces = (l->m + PIECE - 1) / PIECE;
    for (long from = 0; from == 0 || from < *l->count; from += CHANNELS) {
        outliers some = {.l = l, .from = from, .channels = ek_min(CHANNELS, *l->count - from)};
        for (long o = 0; o < some.channels; o++)
            some.places[o] = place_of(l, l->channel[from + o]);
        if (some.channels)
            ek_parallel(pool, gather_rows, &some, l->m, GRAIN);
        ek_parallel(pool, add_outliers, &some, blocks * pieces, 1);
    }
}

/* Stores the bits of each channel's maximum magnitude, by blocks of channels, in the space for the
 * outlier list. */
static void find_largest(const void *args, long begin, long end) {
    const ek_outlier_layer_args *l = args;
    for (long from = begin * BLOCK; from < ek_min(end * BLOCK, l->k); from += BLOCK) {
        const long count = ek_min(BLOCK, l->k - from);
        int32_t most[BLOCK + EK_VL] = {0};
        for (long row = 0; row < l->m; row++) {
            const float *x = l->x + row * l->k + from;
            long i = 0;
            for (; i + EK_VL <= count; i += EK_VL)
                vi_store(most + i, vi_max(vi_load(most + i), magnitude_of(vf_load(x + i))));
            if (i < count)
                vi_store(most + i,
                         vi_max(vi_load(most + i), magnitude_of(vf_load_n(x + i, count - i))));
        }
        memcpy(l->channel + from, most, (size_t)count * sizeof *most);
    }
}

/* Marks channels again, doubling the threshold until few enough remain; non-finite channels always
 * stay marked. */
static void limit_marks(const ek_outlier_layer_args *l, ek_pool *pool) {
    ek_parallel(pool, find_largest, l, ek_ceil(l->k, BLOCK), 1);
    float threshold = l->threshold;
    int32_t limit;
    memcpy(&limit, &threshold, sizeof limit);
    for (long count = l->k; count > l->k / l->share && limit < EK_FINITE_BITS;) {
        threshold *= 2;
        memcpy(&limit, &threshold, sizeof limit);
        limit = ek_min(limit, EK_FINITE_BITS);
        count = 0;
        for (long c = 0; c < l->k; c++)
            count += l->channel[c] > limit;
    }
    for (long at = 0; at < l->k; at += 32) {
        l->marks[at / 32] = 0;
        for (long c = at; c < ek_min(at + 32, l->k); c++)
            l->marks[at / 32] |= (uint32_t)(l->channel[c] > limit) << (c - at);
    }
}

/* Writes the list of marked channels and returns their number. */
static int32_t list_marked(const ek_outlier_layer_args *l) {
    int32_t count = 0;
    for (long at = 0; at < l->k; at += 32)
        for (uint32_t word = l->marks[at / 32]; word; word &= word - 1)
            l->channel[count++] = (int32_t)(at + __builtin_ctz(word));
    return count;
}

static void sum_slices(const ek_outlier_layer_args *l) {
    for (long i = 0; i < l->m * (l->k / l->slice); i++) {
        const int8_t *x = (const int8_t *)l->x1 + i * l->slice;
        int32_t sum = 0;
        for (long p = 0; p < l->slice; p++)
            sum += x[p];
        int32_t multiple = 0;
        for (long j = 0; j < l->multiples; j++)
            l->sums[i * l->multiples + j] = multiple = 4 * multiple + sum * l->factor;
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
    int32_t limit;
    memcpy(&limit, &l->threshold, sizeof limit);
    ek_outlier_scan(&product, limit, l->marks, pool);
    int32_t count = list_marked(l);
    if (count > l->k / l->share) {
        limit_marks(l, pool);
        count = list_marked(l);
    }
    *l->count = count;
    if (l->x1)
        ek_outlier_quantize(&product, count ? l->marks : NULL, l->x1, l->row_scale, pool);
    if (l->sums)
        sum_slices(l);
    if (l->y && (count || l->residual))
        multiply_outliers(l, pool);
}
