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

#define SIDE 6
#define POINTS (SIDE * SIDE)
#define NEAR 0.70710678f
#define FAR 1.41421356f

#ifdef EK_HALF
#define SCALE 0.03125f /* of transformed tiles: finite for all finite x */
#define FAR_SUMS                                                                                   \
    0.3535534f /* factor of sums at +-FAR, whose weights are multiplied by 1 / FAR_SUMS:           \
                 sums at all points are about equally large */
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

/* Where a tile of x is: inside the image at `from`, or, across its border, the pixels at `pixel`.
 */
typedef struct {
    const ek_real *from, *pixel[POINTS];
} ek_tile;

/* Transforms `vectors` vectors of the channels from `at` of a tile into v, at the tile's vector:
 * [point][c / EK_VL][MR][EK_VL] and a gap. */
EK_INLINE void tile_in(const int inside, const ek_tile *tile, long pitch, long c, long at,
                       long vectors, ek_real *v) {
    for (const ek_real *from = tile->from + at; vectors > 0; vectors--) {
        vf d[POINTS];
        EK_UNROLL
        for (int i = 0; i < SIDE; i++) {
            EK_UNROLL
            for (int j = 0; j < SIDE; j++)
                d[i * SIDE + j] =
                    vf_load(inside ? from + i * pitch + j * c : tile->pixel[i * SIDE + j] + at);
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
static void __attribute__((noinline)) tile_inside(const ek_tile *tile, long pitch, long c, long at,
                                                  long vectors, ek_real *v) {
    tile_in(1, tile, pitch, c, at, vectors, v);
}
static void __attribute__((noinline)) tile_across(const ek_tile *tile, long c, long at,
                                                  long vectors, ek_real *v) {
    tile_in(0, tile, 0, c, at, vectors, v);
}

/* Finds the 6x6 pixels at (iy, ix); those outside the image are `zeros`. */
static void __attribute__((noinline)) find_pixels(const ek_window *g, const ek_real *image, long iy,
                                                  long ix, const ek_real *zeros, ek_tile *tile) {
    tile->from = NULL;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            const long y = iy + i, x = ix + j;
            const int outside = y < 0 || y >= g->h || x < 0 || x >= g->w;
            tile->pixel[i * SIDE + j] = outside ? zeros : image + (y * g->w + x) * g->c;
        }
}

/* Transforms m: [point][MR][NV vectors] of tile i to its pixels; only `rows` x `columns` of them
 * exist. */
EK_INLINE void tile_out(const int nv, const ek_f32_winograd_args *a, const ek_real *m, int i,
                        ek_real *y, const ek_real *residual, int rows, int columns, long channel) {
    const vf low = vf_bound(a->low), high = vf_bound(a->high);
    const long oc = a->win.oc, wide = a->win.ow * oc, step = a->pitch, line = a->win.ow * step;
    ek_real out[16 * NV * EK_VL] __attribute__((aligned(64)));
    for (int j = 0; j < nv; j++) {
        vf d[POINTS];
        const vf bias = vf_load((const ek_real *)a->bias + channel + j * EK_VL);
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
        ek_real *to = out + j * EK_VL;
        EK_UNROLL
        for (int s = 0; s < 4; s++) {
            EK_UNROLL
            for (int t = 0; t < 4; t++) {
                if (s >= rows || t >= columns)
                    continue;
                vf v = vf_fma(d[s * SIDE + t], splat(1 / SCALE), bias);
                if (residual)
                    v += vf_load(residual + s * wide + t * oc + at);
                v = vf_clamp(epilogue(&a->epilogue, v, at), low, high);
                vf_store(GATHERS ? to : y + s * line + t * step + at, v);
                to += nv * EK_VL;
            }
        }
    }
    if (!GATHERS) {
        for (int s = 0; s < rows; s++)
            epilogue_rows(&a->epilogue, y + s * line + channel, step, columns, channel, nv * EK_VL);
    } else {
        epilogue_rows(&a->epilogue, out, nv * EK_VL, rows * columns, channel, nv * EK_VL);
        for (int s = 0; s < rows; s++)
            for (int t = 0; t < columns; t++)
                memcpy(y + s * line + t * step + channel, out + (s * columns + t) * nv * EK_VL,
                       sizeof(vf) * nv);
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

/* One panel of nv vectors of channels for `count` tiles starting at tile `first`. */
EK_INLINE void panel(const int nv, const ek_f32_winograd_args *a, const ek_real *v, long first,
                     int count, long channel) {
    const ek_window *g = &a->win;
    const int across = (g->ow + 3) / 4, down = (g->oh + 3) / 4;
    const ek_real *w = (const ek_real *)a->weights + (channel - a->first) * POINTS * g->c;
    const ek_real *residual = a->residual;
    ek_real m[POINTS * MR * NV * EK_VL] __attribute__((aligned(64)));
    if (count > MR / 2)
        multiply(MR, nv, v, w, g->c, m);
    else if (count > MR / 4)
        multiply(MR / 2, nv, v, w, g->c, m);
    else
        multiply(MR / 4, nv, v, w, g->c, m);
    for (int i = 0; i < count; i++) {
        const long t = first + i, ox = t % across * 4, oy = t / across % down * 4;
        const long at = (t / across / down * g->oh + oy) * g->ow + ox;
        tile_out(nv, a, m, i, (ek_real *)a->y + at * a->pitch,
                 residual ? residual + at * g->oc : NULL, (int)ek_min(4, g->oh - oy),
                 (int)ek_min(4, g->ow - ox), channel);
    }
}

/* Transforms `count` tiles starting at `first` into v: [point][c / EK_VL][MR][EK_VL], a line of
 * each pixel at a time, so that the lines of v that are written stay in L1. */
static void tiles_in(const ek_f32_winograd_args *a, long first, int count, ek_real *v) {
    const ek_window *g = &a->win;
    const int across = (g->ow + 3) / 4, down = (g->oh + 3) / 4;
    const long tiles = (long)g->n * across * down, pitch = (long)g->w * g->c;
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
            tile[i].from = image + iy * pitch + ix * g->c;
        else
            find_pixels(g, image, iy, ix, zeros, &tile[i]);
    }
    for (long at = 0; at < g->c; at += LINE) {
        const long vectors = ek_min(LINE, g->c - at) / EK_VL;
        for (int i = 0; i < rows; i++) {
            ek_real *to = v + at * MR + i * EK_VL;
            if (tile[i].from)
                tile_inside(&tile[i], pitch, g->c, at, vectors, to);
            else
                tile_across(&tile[i], g->c, at, vectors, to);
        }
    }
}

/* Panels of the channels [from, until) for the tiles [first, last) in v, one group after another.
 */
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
