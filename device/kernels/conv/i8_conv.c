/* 8-bit convolution, NHWC: an MR x (NV * EK_VL) tile of exact 32-bit sums.
 *
 * Compile-time parameters: NAME, MR, NV, EK_SIMD, TX (type of x), TY (type of y), ROW_SUMS, and
 * optionally NARROW, ROUND_ONCE (fully connected layers) or FLOAT_OUTPUT.
 * Products are made as gemm/i8_tile.h says. Where rows are bytes (I8_IN_PLACE), the zero point of x
 * is folded into the bias by the host; where they are 16-bit values, it is subtracted here. That of
 * the weights is subtracted already from 16-bit weights; from bytes it is not, and with ROW_SUMS it
 * is taken off times the sum of the row.
 * Windows of bytes are read in place, row by row, except on the border; others are packed once
 * into scratch and serve all panels of output channels. */
#include "i8_conv.h"
#define ROW_TYPE TX
#include "../gemm/i8_tile.h"

#define SEGMENTS 16    /* rows of a window that may be read in place; more are packed */
#define SCRATCH 163840 /* bytes; the host picks MR so that a tile's windows fit */

#ifndef NARROW
#define NARROW 0 /* 1: no weight is -128 */
#endif
#define X_IS_UNSIGNED ((TX) - 1 > 0)
#define FLIP I8_FLIP(X_IS_UNSIGNED)

typedef i8_row elem;
typedef i8_value weight;
typedef ek_i8_conv_args conv_args;
#define DEPTH(a) ((a)->k_padded)
#include "rows.h"

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
                    const i8_value *w, long pixel, long channel) {
    i8_sums sums;
    i8_clear(&sums);
    for (long s = 0; s < rows->count; s++) {
        const i8_rows from = {rows->ptr + s * MR, I8_STEP, FLIP, NARROW};
        w = i8_accumulate(mr, nv, &sums, from, rows->length, w);
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        long c = channel + j * EK_VL;
        const output o = output_at(a, c);
        const vi bias = vi_load(a->bias + c);
        TY *y = (TY *)a->y + pixel * a->win.oc + c;
        EK_UNROLL
        for (int i = 0; i < mr; i++, y += a->win.oc) {
            vi sum = i8_sum(nv, &sums, i, j) + bias;
#if ROW_SUMS
            sum -= a->w_zero * rows->sum[i];
#endif
            finish(a, &o, sum, y, a->win.oc - c);
        }
    }
}

/* Appends `count` elements of x (or padding, where x is NULL) to a packed row. */
EK_INLINE elem *append(elem *to, const TX *x, long count, int zero) {
#if I8_IN_PLACE
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
            to[i] = (elem)(x[i] - zero);
#endif
    return to + count;
}

/* Copies (or widens) whole windows into scratch. */
static void pack_windows(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                         int count) {
    const ek_window *g = &a->win;
    long k = (long)g->kh * g->kw * g->c;
    int ox = (int)pixel % g->ow, oy = (int)pixel / g->ow % g->oh, n = (int)pixel / g->ow / g->oh;
    rows->count = 1;
    rows->length = a->k_padded;
    for (int i = 0; i < count; i++) {
        elem *start = scratch + i * a->k_padded, *to = start;
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
#if ROW_SUMS && I8_BYTES
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

static void find_rows(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                      int count) {
    const elem *x = (const elem *)a->x;
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
