/* 8-bit convolution, NHWC: an MR x (NV * EK_VL) tile of exact 32-bit sums.
 *
 * Compile-time parameters: NAME, MR, NV, EK_SIMD, TX (type of x), TY (type of y), ROW_SUMS, and
 * optionally ROUND_ONCE (fully connected layers) or FLOAT_OUTPUT.
 * How products are made depends on the ISA (EK_I8):
 *   DOT4_US / DOT4_SS  bytes in groups of four; x is flipped (xor 0x80) to the signedness the
 *                      instruction wants, zero points are folded into the bias by the host, and
 *                      with ROW_SUMS the weights' zero point times the sum of the row is taken off
 *   PAIR16 / WIDE16    16-bit values with both zero points already subtracted
 * Windows of bytes are read in place, row by row, except on the border; others are packed once
 * into scratch and serve all panels of output channels. */
#include "i8_conv.h"

#define SEGMENTS 16    /* rows of a window that may be read in place; more are packed */
#define SCRATCH 163840 /* bytes; the host picks MR so that a tile's windows fit */

#if EK_I8 == EK_I8_DOT4_US || EK_I8 == EK_I8_DOT4_SS
#define G 4
typedef int8_t packed;
#define X_IS_UNSIGNED ((TX) - 1 > 0)
#define FLIP (((EK_I8 == EK_I8_DOT4_US) != X_IS_UNSIGNED) ? (int32_t)0x80808080 : 0)
typedef vi operand; /* one group of A, in every lane */
EK_INLINE vi a_at(const packed *a) {
    int32_t v;
    memcpy(&v, a, 4);
    return vi_splat(v);
}
EK_INLINE vi multiply_add(vi acc, vi a, const packed *b) {
    vi v;
    memcpy(&v, b, sizeof v);
    return vi_dot4(acc, a, v);
}
#elif EK_I8 == EK_I8_PAIR16
#define G 2
#define FLIP 0
typedef int16_t packed;
typedef vi operand;
EK_INLINE vi a_at(const packed *a) {
    int32_t v;
    memcpy(&v, a, 4);
    return vi_splat(v);
}
EK_INLINE vi multiply_add(vi acc, vi a, const packed *b) {
    vi v;
    memcpy(&v, b, sizeof v);
    return vi_pair16(acc, a, v);
}
#else
#define G 1
#define FLIP 0
typedef int16_t packed;
typedef vs operand;
EK_INLINE vs a_at(const packed *a) {
    return *a - (vs){0};
}
EK_INLINE vi multiply_add(vi acc, vs a, const packed *b) {
    vs v;
    memcpy(&v, b, sizeof v);
    return acc + vcast(v, vi) * vcast(a, vi);
}
#endif
#define STEP (G * (EK_LANES ? EK_VL : 1)) /* k_padded is a multiple of this */

typedef packed elem, weight;
typedef ek_i8_conv_args conv_args;
#define DEPTH(a) ((a)->k_padded)
#include "rows.h"

/* acc[pixel][vector] += A * B; `length` is a multiple of STEP. */
EK_INLINE void accumulate(const int mr, const int nv, vi acc[MR][NV], const rows_t *rows,
                          const packed *w) {
    operand flip = (operand){0} + (int16_t)0;
#if G == 4
    flip = vi_splat(FLIP);
    EK_OPAQUE(flip); /* or the compiler flips in scalar registers, which costs a transfer each */
#endif
    for (long s = 0; s < rows->count; s++) {
        const packed *a[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            a[i] = rows->ptr[s * MR + i];
        for (long p = 0; p < rows->length; p += STEP) {
#if EK_LANES
            operand av[MR];
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                memcpy(&av[i], a[i] + p, sizeof av[i]);
                av[i] ^= flip;
            }
#endif
            EK_UNROLL
            for (int l = 0; l < STEP / G; l++, w += nv * EK_VL * G) {
                EK_UNROLL
                for (int i = 0; i < mr; i++) {
#if EK_LANES
                    const operand x = vlane(av[i], l) - (operand){0};
#else
                    const operand x = a_at(a[i] + p) ^ flip;
#endif
                    EK_UNROLL
                    for (int j = 0; j < nv; j++)
                        acc[i][j] = multiply_add(acc[i][j], x, w + j * EK_VL * G);
                }
            }
        }
    }
}

/* What turns the sums of one vector of channels into outputs. */
#ifdef FLOAT_OUTPUT
typedef struct {
    vf scale, bias;
} output;
EK_INLINE output output_at(const ek_i8_conv_args *a, long channel) {
    return (output){vf_load(a->scale + channel) * vf_splat(*a->x_scale),
                    vf_load(a->bias_f32 + channel)};
}
EK_INLINE void finish(const ek_i8_conv_args *a, const output *o, vi sum, float *y, long left) {
    vf v = vcast(sum, vf) * o->scale + o->bias;
    v = vf_min(vf_max(v, vf_splat(a->low_f32)), vf_splat(a->high_f32));
    if (EK_VL == 1 || left >= EK_VL)
        vf_store(y, v);
    else
        vf_store_n(y, v, left);
}
#else
#ifdef ROUND_ONCE
typedef struct {
    vi multiplier, right;
} output;
EK_INLINE output output_at(const ek_i8_conv_args *a, long channel) {
    return (output){vi_load(a->multiplier + channel), vi_load(a->right + channel)};
}
EK_INLINE vi scaled(const output *o, vi sum) {
    return vi_requantize_once(sum, o->multiplier, o->right);
}
#else
typedef vi_factor output;
EK_INLINE output output_at(const ek_i8_conv_args *a, long channel) {
    return vi_factor_at(a->multiplier, a->left, a->right, channel);
}
EK_INLINE vi scaled(const output *o, vi sum) {
    return vi_requantize(sum, *o);
}
#endif
EK_INLINE void finish(const ek_i8_conv_args *a, const output *o, vi sum, TY *y, long left) {
    vi v = vi_min(vi_max(scaled(o, sum) + a->y_zero, vi_splat(a->low)), vi_splat(a->high));
    if (EK_VL == 1 || left >= EK_VL)
        vi_to_bytes(y, v);
    else
        vi_to_bytes_n(y, v, left);
}
#endif

EK_INLINE void tile(const int mr, const int nv, const ek_i8_conv_args *a, const rows_t *rows,
                    const packed *w, long pixel, long channel) {
    vi acc[MR][NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        vi b = vi_load(a->bias + channel + j * EK_VL);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            acc[i][j] = b;
    }
    accumulate(mr, nv, acc, rows, w);
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        long c = channel + j * EK_VL;
        const output o = output_at(a, c);
        TY *y = (TY *)a->y + pixel * a->win.oc + c;
        EK_UNROLL
        for (int i = 0; i < mr; i++, y += a->win.oc) {
#if ROW_SUMS
            acc[i][j] -= a->w_zero * rows->sum[i];
#endif
            finish(a, &o, acc[i][j], y, a->win.oc - c);
        }
    }
}

/* Appends `count` elements of x (or padding, where x is NULL) to a packed row. */
EK_INLINE packed *append(packed *to, const TX *x, long count, int zero) {
#if G == 4
    if (!x) {
        memset(to, zero, count);
        return to + count;
    }
    long i = 0;
    for (; i + 64 <= count; i += 64)
        memcpy(to + i, x + i, 64);
    ek_copy_short(to + i, x + i, count - i);
#else
    if (!x)
        memset(to, 0, count * sizeof *to);
    else
        for (long i = 0; i < count; i++)
            to[i] = (packed)(x[i] - zero);
#endif
    return to + count;
}

/* Copies (or widens) whole windows into scratch. */
static void pack_windows(const ek_i8_conv_args *a, rows_t *rows, packed *scratch, long pixel,
                         int count) {
    const ek_window *g = &a->win;
    long k = (long)g->kh * g->kw * g->c;
    int ox = (int)pixel % g->ow, oy = (int)pixel / g->ow % g->oh, n = (int)pixel / g->ow / g->oh;
    rows->count = 1;
    rows->length = a->k_padded;
    for (int i = 0; i < count; i++) {
        packed *start = scratch + i * a->k_padded, *to = start;
        long ix = (long)ox * g->sw - g->left;
        int inside = g->dw == 1 && ix >= 0 && ix + g->kw <= g->w;
        for (int ky = 0; ky < g->kh; ky++) {
            long yy = (long)oy * g->sh - g->top + ky * g->dh;
            const TX *line = (const TX *)a->x + (n * g->h + yy) * g->w * g->c;
            int row_inside = yy >= 0 && yy < g->h;
            if (inside && row_inside) {
                to = append(to, line + ix * g->c, (long)g->kw * g->c, a->x_zero);
                continue;
            }
            for (int kx = 0; kx < g->kw; kx++) {
                long xx = ix + kx * g->dw;
                int in = row_inside && xx >= 0 && xx < g->w;
                to = append(to, in ? line + xx * g->c : NULL, g->c, a->x_zero);
            }
        }
        memset(to, 0, (a->k_padded - k) * sizeof *to);
        rows->ptr[i] = start;
#if ROW_SUMS && G == 4
        int32_t sum = 0;
        for (long q = 0; q < k; q++)
            sum += (TX)start[q] + (FLIP ? (X_IS_UNSIGNED ? -128 : 128) : 0);
        rows->sum[i] = sum;
#endif
        if (++ox == g->ow) {
            ox = 0;
            if (++oy == g->oh) {
                oy = 0;
                n++;
            }
        }
    }
}

static void find_rows(const ek_i8_conv_args *a, rows_t *rows, packed *scratch, long pixel,
                      int count) {
    const packed *x = (const packed *)a->x;
    if (!a->segments) {
        pack_windows(a, rows, scratch, pixel, count);
    } else if (a->pointwise && a->segment_length == a->win.c) {
        rows->count = 1;
        rows->length = a->win.c;
        for (int i = 0; i < count; i++)
            rows->ptr[i] = x + (pixel + i) * a->win.c;
    } else {
        find_segments(&a->win, x, rows, scratch, pixel, count, a->segment_length, a->x_zero);
    }
}

#include "panels.h"
