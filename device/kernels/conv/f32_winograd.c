/* f32 convolution (f16 with EK_HALF) with 3x3 windows, stride 1, NHWC: Winograd F(4x4, 3x3)
 * computes 4x4 output pixels with 36 products per channel, a direct convolution with 144.
 *
 * Compile-time parameters: NAME, MR (tiles of 4x4 pixels), NV (vectors of output channels),
 * EK_SIMD. MR tiles of x are transformed, then multiplied by one panel of transformed weights after
 * another. If there are fewer groups of tiles than threads, several threads transform the same
 * tiles, each for its own panels. The interpolation points are 0, +-sqrt(1/2), +-sqrt(2) and
 * infinity: their rounding errors are smaller than those of integer points. */
#include "f32_winograd.h"
#define F32_PREFETCH_BYTES 2048
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

/* Transforms the tile of x at `from` into v: [point][MR][c] and a gap, at the tile's row. */
static void __attribute__((noinline)) tile_in(const ek_real *from, long pitch, long c, ek_real *v) {
    for (long at = 0; at < c; at += EK_VL) {
        vf d[POINTS];
        EK_UNROLL
        for (int i = 0; i < SIDE; i++) {
            EK_UNROLL
            for (int j = 0; j < SIDE; j++)
                d[i * SIDE + j] = vf_load(from + i * pitch + j * c + at);
            transform_in(1, SCALE, d + i * SIDE);
        }
        EK_UNROLL
        for (int j = 0; j < SIDE; j++) {
            transform_in(SIDE, 1, d + j);
            EK_UNROLL
            for (int i = 0; i < SIDE; i++)
                vf_store(v + (i * SIDE + j) * STRIDE(c) + at, d[i * SIDE + j]);
        }
    }
}

/* Copies the 6x6 pixels at (iy, ix); those outside the image are zero. */
static void __attribute__((noinline)) border_tile(const ek_window *g, const ek_real *image, long iy,
                                                  long ix, ek_real *to) {
    const size_t pixel = (size_t)g->c * sizeof *to;
    const long first = ek_max(-ix, 0), until = ek_max(ek_min(g->w - ix, SIDE), first);
    memset(to, 0, POINTS * pixel);
    for (long i = ek_max(-iy, 0); i < SIDE && iy + i < g->h; i++)
        memcpy(to + (i * SIDE + first) * g->c, image + ((iy + i) * g->w + ix + first) * g->c,
               (size_t)(until - first) * pixel);
}

/* Transforms m: [point][MR][NV vectors] of tile i to its pixels; only `rows` x `columns` of them
 * exist. */
EK_INLINE void tile_out(const int nv, const ek_f32_winograd_args *a, const ek_real *m, int i,
                        ek_real *y, const ek_real *residual, int rows, int columns, long channel) {
    const vf low = vf_bound(a->low), high = vf_bound(a->high);
    const long oc = a->win.oc, wide = a->win.ow * oc, step = a->pitch, line = a->win.ow * step;
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
        EK_UNROLL
        for (int s = 0; s < 4; s++) {
            EK_UNROLL
            for (int t = 0; t < 4; t++) {
                if (s >= rows || t >= columns)
                    continue;
                vf v = vf_fma(d[s * SIDE + t], splat(1 / SCALE), bias);
                if (residual)
                    v += vf_load(residual + s * wide + t * oc + at);
                v = epilogue(&a->epilogue, v, at);
                vf_store(y + s * line + t * step + at, vf_clamp(v, low, high));
            }
        }
    }
    for (int s = 0; s < rows; s++)
        epilogue_rows(&a->epilogue, y + s * line + channel, step, columns, channel, nv * EK_VL);
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
                rows[i] = v + i * c + from;
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

/* Transforms `count` tiles starting at `first` into v: [point][MR][c]. */
static void tiles_in(const ek_f32_winograd_args *a, long first, int count, ek_real *v) {
    const ek_window *g = &a->win;
    const int across = (g->ow + 3) / 4, down = (g->oh + 3) / 4;
    const long tiles = (long)g->n * across * down, pitch = (long)g->w * g->c;
    ek_real border[POINTS * CHANNELS] __attribute__((aligned(64)));
    for (int i = 0; i < MR; i++) {
        /* Past the end, repeat the last tile; its products are discarded. */
        const long t = ek_min(first + i, tiles - 1);
        const long ix = t % across * 4 - g->left, iy = t / across % down * 4 - g->top;
        const ek_real *image = (const ek_real *)a->x + t / across / down * g->h * pitch;
        if (i >= count && i >= (count > MR / 2 ? MR : count > MR / 4 ? MR / 2 : MR / 4))
            break;
        if (ix >= 0 && iy >= 0 && ix + SIDE <= g->w && iy + SIDE <= g->h) {
            tile_in(image + iy * pitch + ix * g->c, pitch, g->c, v + i * g->c);
        } else {
            border_tile(g, image, iy, ix, border);
            tile_in(border, SIDE * g->c, g->c, v + i * g->c);
        }
    }
}

/* Task: a group of MR tiles x a part of the panels. */
void NAME(const void *args, long begin, long end) {
    const ek_f32_winograd_args *a = args;
    const ek_window *g = &a->win;
    const long tiles = (long)g->n * ((g->ow + 3) / 4) * ((g->oh + 3) / 4);
    ek_real v[POINTS * STRIDE(CHANNELS)] __attribute__((aligned(64)));
    for (long t = begin, held = -1; t < end; t++) {
        const long group = t / a->parts, part = t % a->parts, first = group * MR;
        const int count = (int)ek_min(MR, tiles - first);
        const long until = a->first + (part + 1) * a->panels / a->parts * NV * EK_VL;
        if (group != held)
            tiles_in(a, first, count, v);
        held = group;
        for (long channel = a->first + part * a->panels / a->parts * NV * EK_VL;
             channel < ek_min(until, a->last); channel += NV * EK_VL) {
            const long left = (a->last - channel) / EK_VL;
            if (left >= NV)
                panel(NV, a, v, first, count, channel);
            else if (left == 1)
                panel(1, a, v, first, count, channel);
            else if (left == 2)
                panel(2, a, v, first, count, channel);
            else
                panel(3, a, v, first, count, channel);
        }
    }
}
