/* f32 convolution (f16 with EK_HALF) with 3x3 windows, stride 1, NHWC: Winograd F(4x4, 3x3)
 * computes 4x4 output pixels with 36 products per channel, a direct convolution with 144.
 *
 * Compile-time parameters: NAME, MR (tiles of 4x4 pixels), NV (vectors of output channels),
 * EK_SIMD. MR tiles of x are transformed, then multiplied by one panel of transformed weights after
 * another. Tiles are interleaved: a product reads two streams, which prefetchers follow. If there
 * are fewer groups of tiles than threads, several threads transform the same tiles, each for its
 * own panels. The interpolation points are 0, +-sqrt(1/2), +-sqrt(2) and infinity: their rounding
 * errors are smaller than those of integer points. */
#include "f32_winograd.h"
#define F32_PREFETCH_BYTES 2048
#define F32_ROW_STEP (MR * EK_VL)
#include "epilogue.h"
#include "../gemm/f32_tile.h"
#include "../touch.h"

#define SIDE 6
#define POINTS (SIDE * SIDE)
#define NEAR 0.70710678f
#define FAR 1.41421356f

#ifdef EK_HALF
#define SCALE 0.03125f /* of transformed tiles: finite for all finite x */
#define FAR_SUMS                                                                                   \
    0.3535534f /* makes sums at +-FAR, by weights times 1 / this, as large as others               \
                */
#define RUN EK_WINOGRAD_HALF_CHANNELS
#else
#define SCALE 1.0f
#define FAR_SUMS 1.0f
#define RUN EK_WINOGRAD_FLOAT_CHANNELS
#endif

/* Elements between the transformed tiles of two points. A line more than a power of two spreads the
 * stores of one tile over all sets of L1. */
#define LINE (64 / (long)sizeof(ek_real))
#define STRIDE(c) (MR * (c) + LINE)
#define CHANNELS (EK_WINOGRAD_BYTES / (long)sizeof(ek_real) / MR) /* at most */
/* Elements of transformed tiles per point: a group of the most channels, or several groups. */
#define ROOM (EK_WINOGRAD_BYTES / (long)sizeof(ek_real) + 2 * LINE)

EK_INLINE vf splat(float x) {
    return vf_splat((ek_real)x);
}

/* Transforms one column or row of an input tile, whose values are `step` vectors apart. */
EK_INLINE void transform_in(const int step, const float scale, vf d[POINTS]) {
    const vf d0 = d[0], d2 = d[2 * step], d5 = d[5 * step];
    const vf d1 = d[step], d3 = d[3 * step] * splat(scale), d4 = d[4 * step] * splat(scale);
    const vf even_near = vf_fma(d2, splat(-2 * scale), d4);
    const vf odd_near = vf_fma(d1, splat(-2 * scale), d3);
    const vf even_far = vf_fma(d2, splat(-0.5f * scale), d4);
    const vf odd_far = vf_fma(d1, splat(-0.5f * scale), d3);
    const vf ends = vf_fma(d5, splat(scale), d1 * splat(scale));
    d[0] = vf_fma(d2, splat(-2.5f * scale), vf_fma(d0, splat(scale), d4));
    d[5 * step] = vf_fma(d3, splat(-2.5f), ends);
    d[step] = vf_fma(odd_near, splat(NEAR), even_near);
    d[2 * step] = vf_fma(odd_near, splat(-NEAR), even_near);
    d[3 * step] = vf_fma(odd_far, splat(FAR), even_far);
    d[4 * step] = vf_fma(odd_far, splat(-FAR), even_far);
}

/* Transforms six sums of products to four outputs. */
EK_INLINE void transform_out(const int step, vf m[POINTS]) {
    const vf sum_near = m[step] + m[2 * step], less_near = m[step] - m[2 * step];
    const vf sum_far = m[3 * step] + m[4 * step], less_far = m[3 * step] - m[4 * step];
    const vf last = vf_fma(less_far, splat(FAR * 2 * FAR_SUMS), m[5 * step]);
    m[0] = vf_fma(sum_far, splat(FAR_SUMS), m[0] + sum_near);
    m[3 * step] = vf_fma(less_near, splat(NEAR / 2), last);
    m[step] = vf_fma(less_near, splat(NEAR), less_far * splat(FAR * FAR_SUMS));
    m[2 * step] = vf_fma(sum_near, splat(0.5f), sum_far * splat(2 * FAR_SUMS));
}

/* Cores in order wait for the lines of x that they need, in an order that their prefetchers do not
 * follow. */
#if EK_IN_ORDER && defined __aarch64__
#define READS_AHEAD 1
#else
#define READS_AHEAD 0
#endif

/* Where a tile of x is: inside the image at `from`, or, across its border, the pixels at `pixel`.
 * READS_AHEAD: the pixels in any case, and what is transformed next: the channels from `ahead` of
 * the tile `next`. */
typedef struct ek_tile {
    const ek_real *from, *pixel[POINTS];
    const struct ek_tile *next;
    long ahead;
} ek_tile;

/* Transforms `vectors` vectors of the channels from `at` of a tile into v, at the tile's vector:
 * [point][c / EK_VL][MR][EK_VL] and a gap. */
EK_INLINE void tile_in(const int inside, const ek_tile *tile, long pitch, long step, long c,
                       long at, long vectors, ek_real *v) {
    const ek_real *const *soon = tile->next->pixel + SIDE - 4; /* columns that `tile` lacks */
    const ek_real *from = inside ? tile->from + at : tile->pixel[0];
    for (; vectors > 0; vectors--, soon += READS_AHEAD) {
        vf d[POINTS];
        EK_UNROLL
        for (int i = 0; i < SIDE; i++) {
            if (READS_AHEAD)
                ek_touch((const float *)(soon[i * SIDE] + tile->ahead));
            EK_UNROLL
            for (int j = 0; j < SIDE; j++)
                d[i * SIDE + j] =
                    vf_load(inside ? from + i * pitch + j * step : tile->pixel[i * SIDE + j] + at);
            transform_in(1, SCALE, d + i * SIDE);
        }
        EK_UNROLL
        for (int j = 0; j < SIDE; j++) {
            transform_in(SIDE, 1, d + j);
            EK_UNROLL
            for (int i = 0; i < SIDE; i++)
                vf_store(v + (i * SIDE + j) * STRIDE(c), d[i * SIDE + j]);
        }
        from += EK_VL, at += EK_VL, v += MR * EK_VL;
    }
}
static void __attribute__((noinline)) tile_inside(const ek_tile *tile, long pitch, long step,
                                                  long c, long at, long vectors, ek_real *v) {
    tile_in(1, tile, pitch, step, c, at, vectors, v);
}
static void __attribute__((noinline)) tile_across(const ek_tile *tile, long c, long at,
                                                  long vectors, ek_real *v) {
    tile_in(0, tile, 0, 0, c, at, vectors, v);
}

/* Finds the 6x6 pixels at (iy, ix); those outside the image are `zeros`. */
static void __attribute__((noinline)) find_pixels(const ek_window *g, const ek_real *image,
                                                  long step, long iy, long ix, const ek_real *zeros,
                                                  ek_tile *tile) {
    tile->from = NULL;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const long y = iy + i, x = ix + j;
            const int outside = y < 0 || y >= g->h || x < 0 || x >= g->w;
            tile->pixel[i * SIDE + j] = outside ? zeros : image + (y * g->w + x) * step;
        }
}

/* The same for a tile at `from`, inside the image. */
static void find_inside(const ek_real *from, long pitch, long step, ek_tile *tile) {
    tile->from = from;
    for (int i = 0; READS_AHEAD && i < SIDE; i++, from += pitch)
        for (int j = 0; j < SIDE; j++)
            tile->pixel[i * SIDE + j] = from + j * step;
}

/* Where the pixels of a tile go and which of them exist. */
typedef struct {
    ek_real *y;
    const ek_real *residual; /* or NULL */
    long line, step;         /* of y: elements between rows and between pixels */
    long wide, apart;        /* the same of `residual` */
    int rows, columns;
    vf bias, low, high;
} ek_pixels;

EK_INLINE vf finish(const ek_f32_winograd_args *a, const ek_pixels *to, int s, int t, vf sum,
                    long at) {
    vf v = vf_fma(sum, splat(1 / SCALE), to->bias);
    if (ADDS_LAST)
        v = epilogue(&a->epilogue, v, at);
    if (!ADDS_TO_ROWS && to->residual)
        v += vf_load(to->residual + s * to->wide + t * to->apart + at);
    if (!ADDS_LAST)
        v = epilogue(&a->epilogue, v, at);
    return vf_clamp(v, to->low, to->high);
}

/* Finishes sums of all pixels, also of those that do not exist, before one is stored: a core in
 * order then computes others while it waits for one. */
EK_INLINE void finish_all(const ek_f32_winograd_args *a, const ek_pixels *to, vf d[POINTS],
                          long at) {
    EK_UNROLL
    for (int s = 0; s < 4; s++) {
        EK_UNROLL
        for (int t = 0; t < 4; t++)
            d[s * SIDE + t] = finish(a, to, s, t, d[s * SIDE + t], at);
    }
}

/* Stores a vector of each pixel in y or, one behind the other, in `out`. */
EK_INLINE void store(const int whole, const int finished, const int nv,
                     const ek_f32_winograd_args *a, const ek_pixels *to, const vf d[POINTS],
                     long at, ek_real *out) {
    EK_UNROLL
    for (int s = 0; s < 4; s++) {
        EK_UNROLL
        for (int t = 0; t < 4; t++) {
            if (!whole && (s >= to->rows || t >= to->columns))
                continue;
            const vf v = d[s * SIDE + t];
            vf_store(GATHERS ? out : to->y + s * to->line + t * to->step + at,
                     finished ? v : finish(a, to, s, t, v, at));
            out += nv * EK_VL;
        }
    }
}

/* Transforms m: [point][MR][NV vectors] of tile i to its pixels. */
EK_INLINE void tile_out(const int nv, const ek_f32_winograd_args *a, const ek_real *m, int i,
                        ek_pixels *to, long channel) {
    const int rows = to->rows, columns = to->columns, whole = rows == 4 && columns == 4;
    ek_real out[16 * NV * EK_VL] __attribute__((aligned(64)));
    for (int j = 0; j < nv; j++) {
        vf d[POINTS];
        to->bias = vf_load((const ek_real *)a->bias + channel + j * EK_VL);
        EK_UNROLL
        for (int s = 0; s < SIDE; s++) {
            EK_UNROLL
            for (int t = 0; t < SIDE; t++)
                d[s * SIDE + t] = vf_load(m + (((s * SIDE + t) * MR + i) * nv + j) * EK_VL);
            transform_out(1, d + s * SIDE);
        }
        EK_UNROLL
        for (int t = 0; t < 4; t++)
            transform_out(SIDE, d + t);
        const long at = channel + j * EK_VL;
        if (EK_IN_ORDER && (whole || !to->residual))
            finish_all(a, to, d, at);
        if (EK_IN_ORDER && whole)
            store(1, 1, nv, a, to, d, at, out + j * EK_VL);
        else if (EK_IN_ORDER && !to->residual)
            store(0, 1, nv, a, to, d, at, out + j * EK_VL);
        else if (whole)
            store(1, 0, nv, a, to, d, at, out + j * EK_VL);
        else
            store(0, 0, nv, a, to, d, at, out + j * EK_VL);
    }
    const long n = nv * EK_VL, step = GATHERS ? n : to->step;
    for (int s = 0; s < rows; s++) {
        ek_real *y = to->y + s * to->line + channel, *at = GATHERS ? out + s * columns * n : y;
        if (!GATHERS || s == 0)
            epilogue_rows(&a->epilogue, at, step, GATHERS ? rows * columns : columns, channel, n);
        if (ADDS_TO_ROWS)
            add_rows(at, step, to->residual + s * to->wide + channel, to->apart, columns, n);
        for (int t = 0; t < columns && GATHERS; t++)
            memcpy(y + t * to->step, at + t * n, sizeof(vf) * nv);
    }
}

/* Products of a panel at all points. Runs of RUN channels are summed first, and then these sums. */
EK_INLINE void multiply(const int mr, const int nv, const ek_real *v, const ek_real *w, long c,
                        ek_real *m) {
    for (int p = 0; p < POINTS; p++, v += STRIDE(c), m += MR * nv * EK_VL)
        for (long from = 0; from < c; from += RUN) {
            vf acc[MR][NV];
            const ek_real *rows[MR];
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                rows[i] = v + from * MR + i * EK_VL;
                EK_UNROLL
                for (int j = 0; j < nv; j++)
                    acc[i][j] = (vf){0};
            }
            w = f32_rows(mr, nv, 0, acc, rows, (f32_columns){w, nv * EK_VL, EK_VL},
                         ek_min(RUN, c - from));
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                EK_UNROLL
                for (int j = 0; j < nv; j++) {
                    ek_real *to = m + (i * nv + j) * EK_VL;
                    vf_store(to, from ? vf_load(to) + acc[i][j] : acc[i][j]);
                }
            }
        }
}

/* Fetches what the end of tile t reads and writes from a channel, if its pixels are apart. */
static void fetch_ends(const ek_f32_winograd_args *a, long t, long channel) {
    const ek_window *g = &a->win;
    const long across = (g->ow + 3) / 4, down = (g->oh + 3) / 4, ox = t % across * 4;
    const long oy = t / across % down * 4, line = t / across / down * g->oh + oy;
    const ek_real *residual = (const ek_real *)a->residual + channel;
    for (long s = 0; s < ek_min(4, g->oh - oy); s++)
        for (long at = (line + s) * g->ow + ox, i = 0; i < ek_min(4, g->ow - ox); i++, at++) {
            __builtin_prefetch(residual + at * a->residual_pitch);
            __builtin_prefetch((ek_real *)a->y + at * a->pitch + channel, 1);
        }
}

/* One panel of nv vectors of channels for `count` tiles starting at tile `first`. */
EK_INLINE void panel(const int nv, const ek_f32_winograd_args *a, const ek_real *v, long first,
                     int count, long channel) {
    const ek_window *g = &a->win;
    const int across = (g->ow + 3) / 4, down = (g->oh + 3) / 4;
    const ek_real *w = (const ek_real *)a->weights + (channel - a->first) * POINTS * g->c;
    const ek_real *residual = a->residual;
    ek_real m[POINTS * MR * NV * EK_VL] __attribute__((aligned(64)));
    for (int i = 0; i < count && ADDS_LAST; i++)
        fetch_ends(a, first + i, channel);
    if (count > MR / 2)
        multiply(MR, nv, v, w, g->c, m);
    else if (count > MR / 4)
        multiply(MR / 2, nv, v, w, g->c, m);
    else
        multiply(MR / 4, nv, v, w, g->c, m);
    for (int i = 0; i < count; i++) {
        const long t = first + i, ox = t % across * 4, oy = t / across % down * 4;
        const long at = (t / across / down * g->oh + oy) * g->ow + ox;
        ek_pixels to = {
            .y = (ek_real *)a->y + at * a->pitch,
            .residual = residual ? residual + at * a->residual_pitch : NULL,
            .line = g->ow * a->pitch,
            .step = a->pitch,
            .wide = g->ow * a->residual_pitch,
            .apart = a->residual_pitch,
            .rows = (int)ek_min(4, g->oh - oy),
            .columns = (int)ek_min(4, g->ow - ox),
            .low = vf_bound(a->low),
            .high = vf_bound(a->high),
        };
        tile_out(nv, a, m, i, &to, channel);
    }
}

/* Transforms `count` tiles starting at `first` into v: [point][c / EK_VL][MR][EK_VL], a line of
 * each pixel at a time, so that the lines of v that are written stay in L1. */
static void tiles_in(const ek_f32_winograd_args *a, long first, int count, ek_real *v) {
    const ek_window *g = &a->win;
    const int across = (g->ow + 3) / 4, down = (g->oh + 3) / 4;
    const long tiles = (long)g->n * across * down, step = a->x_pitch, pitch = g->w * step;
    const int rows = count > MR / 2 ? MR : count > MR / 4 ? MR / 2 : MR / 4;
    ek_tile tile[MR];
    ek_real zeros[CHANNELS] __attribute__((aligned(64)));
    memset(zeros, 0, (size_t)g->c * sizeof *zeros);
    for (int i = 0; i < rows; i++) {
        /* Past the end, repeat the last tile; its products are discarded. */
        const long t = ek_min(first + i, tiles - 1);
        const long ix = t % across * 4 - g->left, iy = t / across % down * 4 - g->top;
        const ek_real *image = (const ek_real *)a->x + t / across / down * g->h * pitch;
        if (ix >= 0 && iy >= 0 && ix + SIDE <= g->w && iy + SIDE <= g->h)
            find_inside(image + iy * pitch + ix * step, pitch, step, &tile[i]);
        else
            find_pixels(g, image, step, iy, ix, zeros, &tile[i]);
    }
    for (long at = 0; at < g->c; at += LINE) {
        const long vectors = ek_min(LINE, g->c - at) / EK_VL;
        for (int i = 0; i < rows; i++) {
            ek_real *to = v + at * MR + i * EK_VL;
            const int last = i + 1 == rows;
            tile[i].next = &tile[last ? 0 : i + 1];
            tile[i].ahead = last && at + LINE < g->c ? at + LINE : at;
            if (tile[i].from)
                tile_inside(&tile[i], pitch, a->x_pitch, g->c, at, vectors, to);
            else
                tile_across(&tile[i], g->c, at, vectors, to);
        }
    }
}

/* Panels of the channels [from, until) for the tiles [first, last) in v, group by group. */
static void panels(const ek_f32_winograd_args *a, const ek_real *v, long first, long last,
                   long from, long until) {
    for (long channel = from; channel < until; channel += NV * EK_VL) {
        const long left = (a->last - channel) / EK_VL;
        const ek_real *group = v;
        for (long t = first; t < last; t += MR, group += POINTS * STRIDE(a->win.c)) {
            const int count = (int)ek_min(MR, last - t);
            if (left >= NV)
                panel(NV, a, group, t, count, channel);
            else if (left == 1)
                panel(1, a, group, t, count, channel);
            else if (left == 2)
                panel(2, a, group, t, count, channel);
            else
                panel(3, a, group, t, count, channel);
        }
    }
}

/* Task: a group of MR tiles x a part of the panels. Consecutive groups are transformed together if
 * the weights exceed a second-level cache: each panel is then read once from memory. */
void NAME(const void *args, long begin, long end) {
    const ek_f32_winograd_args *a = args;
    const ek_window *g = &a->win;
    const long tiles = (long)g->n * ((g->ow + 3) / 4) * ((g->oh + 3) / 4);
    const long bytes = (a->last - a->first) * POINTS * g->c * (long)sizeof(ek_real);
    const int shares = a->parts == 1 && bytes > EK_WINOGRAD_FAR_BYTES;
    const long most = shares ? ROOM / STRIDE(g->c) : 1; /* groups that share panels */
    const long times = ek_max((end - begin + most - 1) / most, 1);
    const long equal = (end - begin + times - 1) / times;
    ek_real v[POINTS * ROOM] __attribute__((aligned(64)));
    for (long t = begin, held = -1, groups; t < end; t += groups) {
        const long group = t / a->parts, part = t % a->parts, first = group * MR;
        groups = ek_min(equal, end - t);
        const long last = ek_min(first + groups * MR, tiles);
        const long from = a->first + part * a->panels / a->parts * NV * EK_VL;
        const long until = a->first + (part + 1) * a->panels / a->parts * NV * EK_VL;
        for (long i = first; group != held && i < last; i += MR)
            tiles_in(a, i, (int)ek_min(MR, last - i), v + (i - first) / MR * POINTS * STRIDE(g->c));
        held = group;
        panels(a, v, first, last, from, ek_min(until, a->last));
    }
}
