/* 8-bit convolution, NHWC: an MR x (NV * EK_VL) tile of exact 32-bit sums.
 *
 * Compile-time parameters: NAME, MR, NV, EK_SIMD, TX (type of x), TY (type of y), ROW_SUMS, and
 * optionally ROUND_ONCE (fully connected layers) or FLOAT_OUTPUT.
 * How products are made depends on the ISA (EK_I8):
 *   DOT4_US / DOT4_SS  bytes in groups of four; x is flipped (xor 0x80) to the signedness the
 *                      instruction wants, zero points are folded into the bias by the host, and
 *                      with ROW_SUMS the weights' zero point times the sum of the row is taken off
 *   PAIR16 / WIDE16    16-bit values with both zero points already subtracted
 * A tile's windows are packed once into scratch and serve all panels of output channels. */
#include "i8_conv.h"

#define NR (NV * EK_VL)
#define SCRATCH 163840 /* bytes; the host picks MR so that a tile's windows fit */

#if EK_I8 == EK_I8_DOT4_US || EK_I8 == EK_I8_DOT4_SS
#define G 4
typedef int8_t packed;
#define X_IS_UNSIGNED ((TX)-1 > 0)
#define FLIP ((EK_I8 == EK_I8_DOT4_US) != X_IS_UNSIGNED)
EK_INLINE int32_t a_at(const packed *a) {
    int32_t v;
    memcpy(&v, a, 4);
    return v;
}
EK_INLINE vi multiply_add(vi acc, int32_t a, const packed *b) {
    vi v;
    memcpy(&v, b, sizeof v);
    return vi_dot4(acc, vi_splat(a), v);
}
#elif EK_I8 == EK_I8_PAIR16
#define G 2
typedef int16_t packed;
EK_INLINE int32_t a_at(const packed *a) {
    int32_t v;
    memcpy(&v, a, 4);
    return v;
}
EK_INLINE vi multiply_add(vi acc, int32_t a, const packed *b) {
    vi v;
    memcpy(&v, b, sizeof v);
    return vi_pair16(acc, vi_splat(a), v);
}
#else
#define G 1
typedef int16_t packed;
EK_INLINE int16_t a_at(const packed *a) { return *a; }
EK_INLINE vi multiply_add(vi acc, int16_t a, const packed *b) {
    vs v;
    memcpy(&v, b, sizeof v);
    return acc + vcast(v, vi) * vcast((vs)(a - (vs){0}), vi);
}
#endif
#define STEP (G * (EK_LANES ? EK_VL : 1)) /* k_padded is a multiple of this */

/* acc += A * B over k_padded steps; with `direct` x itself is A. */
EK_INLINE void accumulate(const int mr, const int nv, vi acc[MR][NV], const packed *const *rows,
                          long k, const packed *w, const int32_t flip) {
    const packed *a[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        a[i] = rows[i];
    for (long p = 0; p < k; p += STEP) {
#if EK_LANES && G == 4
        vi av[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            memcpy(&av[i], a[i] + p, sizeof av[i]);
            av[i] ^= flip;
        }
#elif EK_LANES
        vs av[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            memcpy(&av[i], a[i] + p, sizeof av[i]);
        (void)flip;
#endif
        EK_UNROLL
        for (int l = 0; l < STEP / G; l++, w += nv * EK_VL * G) {
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
#if EK_LANES
                const int32_t x = vlane(av[i], l);
#elif G == 4
                const int32_t x = a_at(a[i] + p) ^ flip;
#else
                const int32_t x = a_at(a[i] + p);
                (void)flip;
#endif
                EK_UNROLL
                for (int j = 0; j < nv; j++)
                    acc[i][j] = multiply_add(acc[i][j], x, w + j * EK_VL * G);
            }
        }
    }
}

#ifndef EK_OWN_BYTE_STORE
/* Lanes 0 .. n of v, which hold values of TY, to p. */
static __attribute__((noinline, unused)) void store_n(TY *p, vi v, long n) {
    int32_t t[EK_VL];
    memcpy(t, &v, sizeof v);
    for (long i = 0; i < n; i++)
        p[i] = (TY)t[i];
}
#endif

#ifdef FLOAT_OUTPUT
EK_INLINE void finish(const ek_i8_conv_args *a, vi sum, float *y, long channel, long left) {
    vf scale = vf_load(a->scale + channel) * vf_splat(*a->x_scale);
    vf v = vcast(sum, vf) * scale + vf_load(a->bias_f32 + channel);
    v = vf_min(vf_max(v, vf_splat(a->low_f32)), vf_splat(a->high_f32));
    if (EK_VL == 1 || left >= EK_VL)
        vf_store(y, v);
    else
        vf_store_n(y, v, left);
}
#else
EK_INLINE void finish(const ek_i8_conv_args *a, vi sum, TY *y, long channel, long left) {
#ifdef ROUND_ONCE
    vi v = vi_requantize_once(sum, vi_load(a->multiplier + channel), vi_load(a->right + channel));
#else
    vi v = vi_requantize(sum, vi_load(a->multiplier + channel), vi_load(a->left + channel),
                         vi_load(a->right + channel));
#endif
    v = vi_min(vi_max(v + a->y_zero, vi_splat(a->low)), vi_splat(a->high));
    if (EK_VL == 1 || left >= EK_VL) {
#if EK_VL > 1
        typedef TY bytes __attribute__((vector_size(EK_VL)));
        bytes b = vcast(v, bytes);
        memcpy(y, &b, sizeof b);
#else
        *y = (TY)v;
#endif
    } else {
        store_n(y, v, left);
    }
}
#endif

typedef struct {
    const packed *row[MR];
    int32_t sum[MR];
} rows_t;

EK_INLINE void tile(const int mr, const int nv, const ek_i8_conv_args *a, const rows_t *rows,
                    const packed *w, long pixel, long channel, const int32_t flip) {
    vi acc[MR][NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        vi b = vi_load(a->bias + channel + j * EK_VL);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            acc[i][j] = b;
    }
    accumulate(mr, nv, acc, rows->row, a->k_padded, w, flip);
    TY *y = (TY *)a->y;
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            long c = channel + j * EK_VL;
#if ROW_SUMS
            acc[i][j] -= a->w_zero * rows->sum[i];
#endif
            finish(a, acc[i][j], y + (pixel + i) * a->win.oc + c, c, a->win.oc - c);
        }
    }
}

EK_INLINE void tile_nv(const int mr, int nv, const ek_i8_conv_args *a, const rows_t *rows,
                       const packed *w, long pixel, long channel, const int32_t flip) {
    if (nv == NV)
        tile(mr, NV, a, rows, w, pixel, channel, flip);
#if NV > 1
    else if (nv == 1)
        tile(mr, 1, a, rows, w, pixel, channel, flip);
#endif
#if NV > 2
    else
        tile(mr, 2, a, rows, w, pixel, channel, flip);
#endif
}

/* Appends `count` elements of x (or padding, where x is NULL) to a packed row. */
EK_INLINE packed *append(packed *to, const TX *x, long count, int zero) {
#if G == 4
    const int flip = FLIP ? 0x80 : 0;
    if (!x)
        memset(to, zero ^ flip, count);
    else
        for (long i = 0; i < count; i++)
            to[i] = (packed)(x[i] ^ flip);
#else
    if (!x)
        memset(to, 0, count * sizeof *to);
    else
        for (long i = 0; i < count; i++)
            to[i] = (packed)(x[i] - zero);
#endif
    return to + count;
}

/* Packs the windows of pixels [pixel, pixel + count) into scratch, or points at x itself. */
static void find_rows(const ek_i8_conv_args *a, rows_t *rows, packed *scratch, long pixel,
                      int count) {
    const ek_window *g = &a->win;
    const TX *x = (const TX *)a->x;
    long k = (long)g->kh * g->kw * g->c;
    for (int i = 0; i < count; i++) {
        if (a->direct) {
            rows->row[i] = (const packed *)(x + (pixel + i) * g->c);
            continue;
        }
        packed *start = scratch + i * a->k_padded, *to = start;
        rows->row[i] = start;
        if (a->pointwise) {
            to = append(to, x + (pixel + i) * g->c, g->c, a->x_zero);
        } else {
            long p = pixel + i;
            long ix = p % g->ow * g->sw - g->left, iy = p / g->ow % g->oh * g->sh - g->top;
            const TX *image = x + p / g->ow / g->oh * g->h * g->w * g->c;
            for (int ky = 0; ky < g->kh; ky++) {
                long yy = iy + ky * g->dh;
                int inside = yy >= 0 && yy < g->h;
                const TX *line = image + yy * g->w * g->c;
                if (inside && g->dw == 1 && ix >= 0 && ix + g->kw <= g->w) {
                    to = append(to, line + ix * g->c, (long)g->kw * g->c, a->x_zero);
                    continue;
                }
                for (int kx = 0; kx < g->kw; kx++) {
                    long xx = ix + kx * g->dw;
                    int in = inside && xx >= 0 && xx < g->w;
                    to = append(to, in ? line + xx * g->c : NULL, g->c, a->x_zero);
                }
            }
        }
        memset(to, 0, (a->k_padded - k) * sizeof *to);
#if ROW_SUMS
        int32_t sum = 0;
        for (long p = 0; p < k; p++)
            sum += EK_I8 == EK_I8_DOT4_US ? (uint8_t)start[p] : start[p];
        rows->sum[i] = sum;
#endif
    }
}

/* Tasks: tiles of MR pixels x panels of NR channels. */
EK_INLINE void run(const ek_i8_conv_args *a, long begin, long end, const int32_t flip) {
    const ek_window *g = &a->win;
    long pixels = (long)g->n * g->oh * g->ow, tiles = (pixels + MR - 1) / MR, ready = -1;
    rows_t rows;
    packed scratch[SCRATCH / sizeof(packed)] __attribute__((aligned(64)));
    for (long t = begin; t < end; t++) {
        long at = a->panel_outer ? t % tiles : t / a->panels;
        long panel = a->panel_outer ? t / tiles : t % a->panels;
        long pixel = at * MR, channel = panel * NR;
        int count = (int)ek_min(MR, pixels - pixel);
        int nv = (int)ek_min(NV, (g->oc - channel + EK_VL - 1) / EK_VL);
        if (at != ready)
            find_rows(a, &rows, scratch, pixel, count);
        ready = at;
        const packed *w = (const packed *)a->weights + channel * a->k_padded;
        if (count == MR) {
            tile_nv(MR, nv, a, &rows, w, pixel, channel, flip);
            continue;
        }
        for (int i = 0; i < count; i++) {
            rows_t one = {.row = {rows.row[i]}, .sum = {rows.sum[i]}};
            tile_nv(1, nv, a, &one, w, pixel + i, channel, flip);
        }
    }
}

void NAME(const ek_i8_conv_args *a, long begin, long end) {
#if G == 4
    if (FLIP && a->direct)
        run(a, begin, end, (int32_t)0x80808080);
    else
#endif
        run(a, begin, end, 0);
}
