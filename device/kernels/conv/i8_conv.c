/* 8-bit convolution, NHWC: an MR x (NV * EK_VL) tile of exact 32-bit sums.
 *
 * Compile-time parameters: NAME, MR, NV, EK_SIMD, TX (type of x), TY (type of y), W_ZERO, and
 * optionally NARROW, HALF_STEP, RIGHT_ONLY (the preconditions of vi_requantize_right hold),
 * NO_SHIFT (factors have no shift), SHORT (those of vi_short_quantized8 hold, too), FLOAT_REQUANT
 * (1 or 2 linear steps requantize, with EK_LINES), ROUND_ONCE (fully connected layers), LOOK_UP
 * (look_up_rows.h), READ_AHEAD, STEPS (k in steps of I8_STEP, if they are few: i8_strips.h),
 * FLOAT_OUTPUT, INT4 (4-bit weights, unpacked per panel by i4_unpack.h; the pixel loop is inside),
 * and with FLOAT_OUTPUT, GROUPS (weights have one scale per group of k, i8_groups.h) and optionally
 * BF16_SCALES, or STREAM, STREAM_BITS and SCALES (i8_stream.h).
 *
 * gemm/i8_tile.h computes the products. If rows are bytes (I8_IN_PLACE), the host has folded the
 * zero point of x into the bias; if they are 16-bit values, it is subtracted here. The zero point
 * of the weights is already subtracted, except with W_ZERO: then widening subtracts it, or where
 * bytes are multiplied, the product of zero point and row sum is subtracted. Per-channel zero
 * points (W_ZERO 2) always use the row sum.
 *
 * Byte windows are read in place, row by row, except at the border; others are packed once into
 * scratch and serve all panels of output channels. */
#include "i8_conv.h"
#define ROW_TYPE TX
#include "../gemm/i8_tile.h"

#define SEGMENTS EK_I8_SEGMENTS
#define SCRATCH (EK_I8_SCRATCH_BYTES + 64)

#ifndef NARROW
#define NARROW 0 /* 1: no weight is -128 */
#endif
/* 1: the first step along k is peeled, so the sums need not be zeroed. */
#define STARTS_APART(mr, nv) (EK_I8 == EK_I8_MULL16 && !I8_IN_ORDER(mr, nv))
#define BIAS_FIRST (EK_I8 == EK_I8_DOT4_SS) /* 1: sums start at the bias */
#ifndef FLIPPED
#define FLIPPED 0 /* 1: bytes are flipped while windows are copied; all windows are copied then */
#endif
#define ROW_SUMS (W_ZERO == 2 || (W_ZERO && I8_BYTES))
#define SUMS_FIRST (W_ZERO == 1 && (EK_I8 == EK_I8_MULL16 || EK_I8 == EK_I8_DOT4_SS))
#if ROW_SUMS || FLIPPED
#define KEPT_TILES EK_I8_KEPT_TILES
#endif
#define ZERO(a) (W_ZERO == 1 && !I8_BYTES ? (i8_value)(a)->w_zero : 0)
#define X_IS_UNSIGNED ((TX) - 1 > 0)
#define FLIP (FLIPPED ? 0 : I8_FLIP(X_IS_UNSIGNED))

typedef i8_row elem;
typedef i8_value weight;
typedef ek_i8_conv_args conv_args;
#ifdef GROUPS
#define DEPTH(a) ((a)->groups * GROUPS)
#else
#define DEPTH(a) ((a)->k_padded)
#endif
#define INSIDE_FIRST (EK_I8_SIGNED_DOTS && !EK_IN_ORDER)
#define BYTES_AHEAD(length) ((length) / I8_STEP * 64)
#define STRIP_TILES 16 /* their windows stay in L1 */
#include "rows.h"

#ifdef STREAM
#include "i8_stream.h"
#endif
#ifdef GROUPS
#include "i8_groups.h"
#else
#if INSIDE_FIRST
#include "i8_border.h"
#endif
#include "i8_row_sums.h"
#include "i8_windows.h"

#include "i8_finish.h"

/* Parameters that convert the sums of one vector of channels to outputs. */
#ifdef FLOAT_OUTPUT
typedef struct {
    vf scale, bias, low, high;
    int adds;
} output;
/* plain: all pixels share one scale and nothing is added to y, so stores need no tests. */
EK_INLINE output output_at(const int plain, const ek_i8_conv_args *a, long channel) {
    const vf scale = vf_load(a->scale + channel);
    return (output){
        .scale = plain ? scale * vf_splat(*a->x_scale) : scale,
        .bias = vf_load(a->bias_f32 + channel),
        .low = vf_bound(a->low_f32),
        .high = vf_bound(a->high_f32),
        .adds = !plain && a->add && *a->add,
    };
}
EK_INLINE void finish(const int plain, const int full, const ek_i8_conv_args *a, const output *o,
                      vi sum, float *y, long left, long pixel) {
    const vf scale = plain ? o->scale : o->scale * vf_splat(a->x_scale[pixel * a->x_scale_step]);
    vf v = vcast(sum, vf) * scale + o->bias;
    if (o->adds)
        v += full || EK_VL == 1 || left >= EK_VL ? vf_load(y) : vf_load_n(y, left);
    v = vf_clamp(v, o->low, o->high);
    if (full || EK_VL == 1 || left >= EK_VL)
        vf_store(y, v);
    else
        vf_store_n(y, v, left);
}
#endif

EK_INLINE vi sum_at(const int nv, const ek_i8_conv_args *a, const rows_t *rows, const i8_sums *sums,
                    int i, int j, long channel, vi bias) {
    vi sum = i8_sum(nv, sums, i, j);
    if (!BIAS_FIRST)
        sum += bias;
#if W_ZERO == 2
    sum -= vi_load(a->w_zeros + channel) * vi_splat(rows->sum[i]);
#elif ROW_SUMS && !SUMS_FIRST
    sum -= rows->sum[i];
#endif
    (void)a, (void)rows, (void)channel;
    return sum;
}

#if FINISHES_FULL
/* Full vectors of 8-bit outputs, STORE_GROUP at a time, spanning rows if there are few vectors of
 * channels. The last group repeats its last vector. */
EK_INLINE void finish_full(const int mr, const int nv, const ek_i8_conv_args *a, const rows_t *rows,
                           const i8_sums *sums, TY *y, long channel) {
    const vi_range range = vi_range_of(a->y_zero, a->low, a->high);
    const long pitch = a->pitch;
    output o[NV];
    vi bias[NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        o[j] = output_at(0, a, channel + j * EK_VL);
        bias[j] = bias_at(a, channel + j * EK_VL);
    }
    EK_UNROLL
    for (int p = 0; p < mr * nv; p += STORE_GROUP) {
        vi v[STORE_GROUP];
        TY *to[STORE_GROUP];
        EK_UNROLL
        for (int q = 0; q < STORE_GROUP; q++) {
            const int at = p + q < mr * nv ? p + q : mr * nv - 1, i = at / nv, j = at % nv;
            const vi sum = sum_at(nv, a, rows, sums, i, j, channel + j * EK_VL, bias[j]);
            v[q] = scaled(&o[j], sum);
#ifdef FLOAT_REQUANT
            reload_offset(&o[j]);
#endif
            to[q] = y + i * pitch + j * EK_VL;
        }
        store_quantized(v, &range, to);
    }
}
#endif

#ifdef EK_QUANTIZED8
#define STORES_FULL 1 /* otherwise each row tests first and waits for the previous one */
#else
#define STORES_FULL 0
#endif
/* plain: see output_at; full: no vector extends beyond the last channel. */
EK_INLINE void finish_tile(const int plain, const int full, const int mr, const int nv,
                           const ek_i8_conv_args *a, const rows_t *rows, const i8_sums *sums,
                           long pixel, long channel) {
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        long c = channel + j * EK_VL;
        const output o = output_at(plain, a, c);
        const vi bias = bias_at(a, c);
        TY *y = (TY *)a->y + pixel * a->pitch + c;
        EK_UNROLL
        for (int i = 0; i < mr; i++, y += a->pitch)
            finish(plain, full, a, &o, sum_at(nv, a, rows, sums, i, j, c, bias), y, a->win.oc - c,
                   pixel + i);
    }
}

/* sums += windows x panel. */
EK_INLINE void add_products(const int mr, const int nv, const ek_i8_conv_args *a,
                            const rows_t *rows, i8_sums *sums, const i8_value *w, long channel) {
    (void)channel;
#if I8_SCHEDULED && MR == 4
    if (I8_IN_ORDER(mr, nv)) {
        const i8_rows from = {rows->ptr, I8_STEP, FLIP, NARROW, ZERO(a)};
        i8_segments_in_order(sums, rows->ptr, rows->count, rows->length, from, w);
        return;
    }
#endif
#if EK_I8 == EK_I8_MULL16 && I8_INTERLEAVED && NARROW
    if (mr == 4 && nv == 1) {
        const char *ahead = NULL;
#ifdef READ_AHEAD
        const long own = rows->count * BYTES_AHEAD(rows->length);
        const long later = rows->ahead + channel / EK_VL * own;
        if (later + own <= a->ahead_bytes)
            ahead = (const char *)a->ahead + later;
#endif
        for (long s = 0; s < rows->count; s++) {
            const i8_rows from = {rows->ptr + s * MR, I8_STEP, FLIP, NARROW, ZERO(a), HALF_STEP};
            w = i8_rows_out_of_order(0, sums, from, rows->length, ahead, w);
            ahead += ahead ? BYTES_AHEAD(rows->length) : 0;
        }
        return;
    }
#endif
    const i8_row *row[MR];
    long length = rows->length;
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        row[i] = rows->ptr[i];
    if (STARTS_APART(mr, nv)) {
        const i8_rows from = {row, I8_STEP, FLIP, NARROW, ZERO(a)};
        w = i8_accumulate(mr, nv, sums, from, I8_STEP, w);
        length -= I8_STEP;
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            row[i] += I8_STEP;
    }
    for (long s = 1;; s++) {
        const i8_rows from = {row, I8_STEP, FLIP, NARROW, ZERO(a), HALF_STEP};
        w = i8_accumulate(mr, nv, sums, from, length, w);
        if (s == rows->count)
            break;
        length = rows->length;
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            row[i] = rows->ptr[s * MR + i];
    }
}

EK_INLINE void tile(const int mr, const int nv, const ek_i8_conv_args *a, const rows_t *rows,
                    const i8_value *w, long pixel, long channel) {
    i8_sums sums;
    i8_clear(&sums);
#if BIAS_FIRST
    EK_UNROLL
    for (int i = 0; i < mr * nv; i++)
        sums.of[i / nv][i % nv] = bias_at(a, channel + i % nv * EK_VL);
#endif
#if SUMS_FIRST
    subtract_row_sums(mr, nv, rows, &sums);
#endif
    add_products(mr, nv, a, rows, &sums, w, channel);
#if FINISHES_FULL
    if (channel + nv * EK_VL <= a->win.oc) {
        finish_full(mr, nv, a, rows, &sums, (TY *)a->y + pixel * a->pitch + channel, channel);
        return;
    }
#endif
#ifdef FLOAT_OUTPUT
    if (!a->x_scale_step && !(a->add && *a->add)) {
        if (STORES_FULL && channel + nv * EK_VL <= a->win.oc)
            finish_tile(1, 1, mr, nv, a, rows, &sums, pixel, channel);
        else
            finish_tile(1, 0, mr, nv, a, rows, &sums, pixel, channel);
        return;
    }
    if (STORES_FULL && channel + nv * EK_VL <= a->win.oc) {
        finish_tile(0, 1, mr, nv, a, rows, &sums, pixel, channel);
        return;
    }
#endif
    finish_tile(0, 0, mr, nv, a, rows, &sums, pixel, channel);
}

static void find_rows(const ek_i8_conv_args *a, rows_t *rows, elem *scratch, long pixel,
                      int count) {
#if I8_IN_PLACE
    if (a->pointwise && a->segments && find_pixels(a, rows, scratch, pixel, count))
        return;
#endif
#if INSIDE_FIRST
    if (a->bordered) {
        if (rows->next < 0)
            copy_with_border(a, &rows->padded, (char *)scratch);
        find_segments(&rows->padded, scratch, rows, scratch + a->bordered, pixel, count,
                      a->segment_length, a->x_zero);
        return;
    }
#endif
    if (!a->segments || a->pointwise)
        pack_windows(a, rows, scratch, pixel, count);
    else
        find_segments(&a->win, (const elem *)a->x, rows, scratch, pixel, count, a->segment_length,
                      a->x_zero);
}
#endif /* GROUPS */

#if defined INT4 && !defined STREAM
#include "../gemm/i4_unpack.h"
#define UNPACKED EK_I8_UNPACKED_BYTES
static void unpack_panel(const ek_i8_conv_args *a, long panel, weight *to) {
    const long full = NV * EK_VL * DEPTH(a), first = panel * NV * EK_VL;
    const long vectors = ek_min(NV, (a->win.oc - first + EK_VL - 1) / EK_VL);
    const long count = vectors * EK_VL * DEPTH(a);
    const uint8_t *from = (const uint8_t *)a->weights + panel * ((full + 1) / 2);
    unpack_i4_panel(from, count, MR == 1 ? I8_PREFETCH_DISTANCE : 0, to);
}
#endif
#include "look_up_rows.h"
/* Postprocesses `count` pixels, all sums of which are final, in channels [channel, until). */
EK_INLINE void finish_panels(const ek_i8_conv_args *a, long pixel, long count, long channel,
                             long until) {
    TY *y = (TY *)a->y + pixel * a->pitch + channel;
    look_up_rows(a->table, y, a->pitch, count, channel, until - channel);
}
#define FINISH_PANELS 1
#ifdef STEPS
#include "i8_strips.h"
#endif
#include "panels.h"
