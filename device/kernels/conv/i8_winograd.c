/* 8-bit convolution with 3x3 windows, stride 1, NHWC: Winograd F(4x4, 3x3) in integers, for 64-bit
 * ARM without dot products. The results are those of conv/i8_conv.c.
 *
 * Compile-time parameters: NAME, MR (tiles of 4x4 pixels), NV (2 vectors of output channels),
 * EK_SIMD, TX (type of x), TY (type of y), and those of conv/i8_conv.c that say how sums are
 * requantized.
 *
 * The interpolation points are 0, +-1, +-2 and infinity. Tiles of x are transformed to integers of
 * 16 bits, at most 100 * 128; the host has scaled the transformed weights to integers of 16 bits.
 * Sums of their products are 32-bit numbers that wrap around: in the end they are 24 * 24 times the
 * result modulo 2^32, which determines a result of at most 26 bits. The host has checked that the
 * weights permit no larger one. */
#include "i8_winograd.h"
#define NR (NV * EK_VL)
typedef ek_i8_winograd_args conv_args;
#include "i8_finish.h"
#include "look_up_rows.h"

#define SIDE 6
#define POINTS (SIDE * SIDE)
#define GROUP 8                                                  /* channels of x of a vector */
#define FLIP (((TX) - 1 > 0) ? INT64_C(-0x7f7f7f7f7f7f7f80) : 0) /* makes bytes signed */
#define NINTH 0x38E38E39u                                        /* 9 times this is 1 modulo 2^32 */
#define POWERS 6                                                 /* 2^POWERS * 9 = 24 * 24 */

#define RUN 32 /* channels of a tile that are transformed before the next tile's */
#define DEPTH(c) (((c) + GROUP - 1) / GROUP * GROUP)
/* Elements between the transformed tiles of two points. A line more than a power of two spreads the
 * stores of one tile over all sets of L1. */
#define LINE (64 / (long)sizeof(int16_t))
#define STRIDE(c) (MR * DEPTH(c) + LINE)
/* Elements of transformed tiles per point: a group of the most channels, or several groups. */
#define ROOM (EK_WINOGRAD_BYTES / (long)sizeof(int16_t) + 2 * LINE)

typedef ek_neon_vs8 vs8; /* eight 16-bit values */
#define IN_ORDER (EK_IN_ORDER && MR == 8)
#if IN_ORDER
#include "i8_winograd_in_order.h"
#endif

/* Transforms one column or row of an input tile, whose values are `step` vectors apart. */
EK_INLINE void transform_in(const int step, vs8 d[POINTS]) {
    const vs8 d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
    const vs8 d4 = d[4 * step], d5 = d[5 * step];
    const vs8 even_near = d4 - (d2 << 2), odd_near = d3 - (d1 << 2);
    const vs8 even_far = d4 - d2, odd_far = (d3 - d1) << 1;
    d[0] = even_far + ((d0 - d2) << 2);
    d[step] = even_near + odd_near;
    d[2 * step] = even_near - odd_near;
    d[3 * step] = even_far + odd_far;
    d[4 * step] = even_far - odd_far;
    d[5 * step] = d5 - d3 - (odd_far << 1);
}

/* Transforms six sums of products to 24 times four outputs. */
EK_INLINE void transform_out(const int step, vu m[POINTS]) {
    const vu sum_near = m[step] + m[2 * step], less_near = m[step] - m[2 * step];
    const vu sum_far = m[3 * step] + m[4 * step], less_far = m[3 * step] - m[4 * step];
    m[0] += sum_near + sum_far;
    m[step] = less_near + (less_far << 1);
    m[2 * step] = sum_near + (sum_far << 2);
    m[3 * step] = less_near + ((less_far + m[5 * step]) << 3);
}

/* Where a tile of x is: inside the image at `from`, or, across its border, the pixels at `pixel`.
 */
typedef struct {
    const TX *from, *pixel[POINTS];
} ek_tile;

/* Eight channels of a pixel, or `count` of them. */
EK_INLINE vs8 load_bytes(const TX *from, const long count) {
    typedef int8_t bytes __attribute__((vector_size(GROUP)));
    int64_t all = 0;
    memcpy(&all, from, (size_t)count);
    all ^= FLIP;
    return vcast((bytes)all, vs8);
}

/* Transforms `count` channels at `at` of a tile into v, at the tile's vector:
 * [point][c / GROUP][MR][GROUP] and a gap. */
EK_INLINE void tile_in(const int inside, const ek_tile *tile, long pitch, long step, long stride,
                       long at, const long count, int16_t *v) {
    vs8 d[POINTS];
    EK_UNROLL
    for (int i = 0; i < SIDE; i++) {
        EK_UNROLL
        for (int j = 0; j < SIDE; j++) {
            const TX *from = inside ? tile->from + i * pitch + j * step : tile->pixel[i * SIDE + j];
            d[i * SIDE + j] = load_bytes(from + at, count);
        }
        transform_in(1, d + i * SIDE);
    }
    EK_UNROLL
    for (int j = 0; j < SIDE; j++) {
        transform_in(SIDE, d + j);
        EK_UNROLL
        for (int i = 0; i < SIDE; i++)
            memcpy(v + (i * SIDE + j) * stride, &d[i * SIDE + j], sizeof *d);
    }
}
static void __attribute__((noinline)) tile_inside(const ek_tile *tile, long pitch, long step,
                                                  long stride, long at, long end, int16_t *v) {
    for (; at < end; at += GROUP, v += MR * GROUP)
        tile_in(1, tile, pitch, step, stride, at, GROUP, v);
}
static void __attribute__((noinline)) tile_across(const ek_tile *tile, long stride, long at,
                                                  long end, int16_t *v) {
    for (; at < end; at += GROUP, v += MR * GROUP)
        tile_in(0, tile, 0, 0, stride, at, GROUP, v);
}
/* The last channels, if they do not fill a vector. */
static void __attribute__((noinline)) tile_rest(const ek_tile *tile, long stride, long at,
                                                long count, int16_t *v) {
    tile_in(0, tile, 0, 0, stride, at, count, v);
}

/* Finds the 6x6 pixels at (iy, ix); those outside the image are `zeros`. */
static void __attribute__((noinline)) find_pixels(const ek_window *g, const TX *image, long iy,
                                                  long ix, const TX *zeros, ek_tile *tile) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const long y = iy + i, x = ix + j;
            const int outside = y < 0 || y >= g->h || x < 0 || x >= g->w;
            tile->pixel[i * SIDE + j] = outside ? zeros : image + (y * g->w + x) * g->c;
        }
}

EK_INLINE int rows_of(int count) {
    return count > MR / 2 ? MR : count > MR / 4 ? MR / 2 : MR / 4;
}

/* Transforms `count` tiles starting at `first` into v: [point][c / GROUP][MR][GROUP], a part of a
 * line of each pixel at a time, so that the lines of v that are written stay in L1. */
static void tiles_in(const ek_i8_winograd_args *a, long first, int count, int16_t *v) {
    const ek_window *g = &a->win;
    const int across = (g->ow + 3) / 4, down = (g->oh + 3) / 4, rows = rows_of(count);
    const long tiles = (long)g->n * across * down, step = g->c, pitch = g->w * step;
    const long stride = STRIDE(g->c), whole = step / GROUP * GROUP;
    ek_tile tile[MR];
    TX zeros[ROOM / MR];
    memset(zeros, a->x_zero, (size_t)step);
    for (int i = 0; i < rows; i++) {
        /* Past the end, repeat the last tile; its products are discarded. */
        const long t = ek_min(first + i, tiles - 1);
        const long ix = t % across * 4 - g->left, iy = t / across % down * 4 - g->top;
        const TX *image = (const TX *)a->x + t / across / down * g->h * pitch;
        const int inside = ix >= 0 && iy >= 0 && ix + SIDE <= g->w && iy + SIDE <= g->h;
        tile[i].from = inside ? image + iy * pitch + ix * step : NULL;
        if (!inside || whole < step)
            find_pixels(g, image, iy, ix, zeros, &tile[i]);
    }
    for (long at = 0; at < whole; at += RUN)
        for (int i = 0; i < rows; i++) {
            int16_t *to = v + at * MR + i * GROUP;
            if (tile[i].from)
                tile_inside(&tile[i], pitch, step, stride, at, ek_min(at + RUN, whole), to);
            else
                tile_across(&tile[i], stride, at, ek_min(at + RUN, whole), to);
        }
    for (int i = 0; i < rows && whole < step; i++)
        tile_rest(&tile[i], stride, whole, step - whole, v + whole * MR + i * GROUP);
}

/* acc += products of mr tiles by a panel, at a point. */
EK_INLINE void add_products(const int mr, vi acc[MR][NV], const int16_t *v, const int16_t *w,
                            long c) {
#if IN_ORDER
    if (mr == 8) {
        multiply_in_order(acc, v, w, c / GROUP);
        return;
    }
#endif
    for (long k = 0; k < c; k += GROUP, v += MR * GROUP) {
        vs8 x[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            memcpy(&x[i], v + i * GROUP, sizeof *x);
        EK_UNROLL
        for (int l = 0; l < GROUP; l++, w += NR) {
            vs8 b;
            memcpy(&b, w, sizeof b);
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                const vs8 value = x[i][l] - (vs8){0};
                acc[i][0] = vi_multiply_low(acc[i][0], b, value);
                acc[i][1] = vi_multiply_high(acc[i][1], b, value);
            }
        }
    }
}

/* m: [point][MR][NR], products of a panel at all points. */
EK_INLINE void multiply(const int mr, const int16_t *v, const int16_t *w, long c, int32_t *m) {
    for (int p = 0; p < POINTS; p++, v += STRIDE(c), w += c * NR, m += MR * NR) {
        vi acc[MR][NV];
        EK_UNROLL
        for (int i = 0; i < mr * NV; i++)
            acc[i / NV][i % NV] = (vi){0};
        add_products(mr, acc, v, w, c);
        EK_UNROLL
        for (int i = 0; i < mr * NV; i++)
            vi_store(m + i * EK_VL, acc[i / NV][i % NV]);
    }
}

/* Where the pixels of a tile go and which of them exist. */
typedef struct {
    TY *y;
    long line, step; /* elements between rows and between pixels */
    int rows, columns;
} ek_pixels;

/* Transforms a tile's vector of channels in m: [point][MR][NR] to `out`: [pixel][NR]. */
EK_INLINE void vector_out(const ek_i8_winograd_args *a, const int32_t *m, long channel, TY *out) {
    const vi_range range = vi_range_of(a->y_zero, a->low, a->high);
    const vi bias = bias_at(a, channel);
    output o = output_at(0, a, channel);
    vu d[POINTS];
    EK_UNROLL
    for (int s = 0; s < SIDE; s++) {
        EK_UNROLL
        for (int t = 0; t < SIDE; t++)
            d[s * SIDE + t] = (vu)vi_load(m + (s * SIDE + t) * MR * NR);
        transform_out(1, d + s * SIDE);
    }
    EK_UNROLL
    for (int t = 0; t < 4; t++) {
        transform_out(SIDE, d + t);
        EK_UNROLL
        for (int s = 0; s < 4; s += STORE_GROUP) {
            vi v[STORE_GROUP];
            TY *to[STORE_GROUP];
            EK_UNROLL
            for (int q = 0; q < STORE_GROUP; q++) {
                const vi sum = (vi)(d[(s + q) * SIDE + t] * NINTH) >> POWERS;
                v[q] = scaled(&o, sum + bias);
#ifdef FLOAT_REQUANT
                reload_offset(&o);
#endif
                to[q] = out + ((s + q) * 4 + t) * NR;
            }
            store_quantized(v, &range, to);
        }
    }
}

/* Outputs of `n` channels of a tile. */
static void __attribute__((noinline)) tile_out(const ek_i8_winograd_args *a, const int32_t *m,
                                               const ek_pixels *to, long channel, long n) {
    TY out[16 * NR];
    for (int j = 0; j < NV; j++)
        vector_out(a, m + j * EK_VL, channel + j * EK_VL, out + j * EK_VL);
    look_up_rows(a->table, out, NR, 16, channel, NR);
    for (int s = 0; s < to->rows; s++)
        for (int t = 0; t < to->columns; t++) {
            TY *y = to->y + s * to->line + t * to->step + channel;
            if (n == NR)
                memcpy(y, out + (s * 4 + t) * NR, NR);
            else
                memcpy(y, out + (s * 4 + t) * NR, (size_t)n);
        }
}

/* One panel of channels for `count` tiles starting at tile `first`. */
static void panel(const ek_i8_winograd_args *a, const int16_t *v, long first, int count,
                  long channel) {
    const ek_window *g = &a->win;
    const int across = (g->ow + 3) / 4, down = (g->oh + 3) / 4, rows = rows_of(count);
    const long c = DEPTH(g->c);
    const int16_t *w = a->weights + channel * POINTS * c;
    int32_t m[POINTS * MR * NR] __attribute__((aligned(64)));
    if (rows == MR)
        multiply(MR, v, w, c, m);
    else if (rows == MR / 2)
        multiply(MR / 2, v, w, c, m);
    else
        multiply(MR / 4, v, w, c, m);
    for (int i = 0; i < count; i++) {
        const long t = first + i, ox = t % across * 4, oy = t / across % down * 4;
        const ek_pixels to = {
            .y = (TY *)a->y + ((t / across / down * g->oh + oy) * g->ow + ox) * a->pitch,
            .line = g->ow * a->pitch,
            .step = a->pitch,
            .rows = (int)ek_min(4, g->oh - oy),
            .columns = (int)ek_min(4, g->ow - ox),
        };
        tile_out(a, m + i * NR, &to, channel, ek_min(NR, g->oc - channel));
    }
}

/* Task: a group of MR tiles x a part of the panels. Consecutive groups are transformed together if
 * the weights exceed a second-level cache: each panel is then read once from memory. */
void NAME(const void *args, long begin, long end) {
    const ek_i8_winograd_args *a = args;
    const ek_window *g = &a->win;
    const long tiles = (long)g->n * ((g->ow + 3) / 4) * ((g->oh + 3) / 4), stride = STRIDE(g->c);
    const long bytes = a->panels * NR * POINTS * DEPTH(g->c) * (long)sizeof(int16_t);
    const int shares = a->parts == 1 && bytes > EK_WINOGRAD_FAR_BYTES;
    const long most = shares ? ROOM / stride : 1; /* groups that share panels */
    const long times = ek_max((end - begin + most - 1) / most, 1);
    const long equal = (end - begin + times - 1) / times;
    int16_t v[POINTS * ROOM] __attribute__((aligned(64)));
    for (long t = begin, held = -1, groups; t < end; t += groups) {
        const long group = t / a->parts, part = t % a->parts, first = group * MR;
        groups = ek_min(equal, end - t);
        const long last = ek_min(first + groups * MR, tiles);
        for (long i = first; group != held && i < last; i += MR)
            tiles_in(a, i, (int)ek_min(MR, last - i), v + (i - first) / MR * POINTS * stride);
        held = group;
        const long until = (part + 1) * a->panels / a->parts;
        for (long p = part * a->panels / a->parts; p < until; p++)
            for (long i = first; i < last; i += MR)
                panel(a, v + (i - first) / MR * POINTS * stride, i, (int)ek_min(MR, last - i),
                      p * NR);
    }
}
