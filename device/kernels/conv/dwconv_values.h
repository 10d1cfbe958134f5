/* Element types of depthwise convolutions, f32 or 8-bit: BLOCK channels per accumulator vector, and
 * how inputs, weights and outputs are loaded and stored.
 *
 * Include after dwconv.h, with PITCHED (pixels are x_pitch and pitch apart) or not, TX (plus
 * FLOAT_X for floats, and the parameters of epilogue.h). For 8-bit types: LOOK_UP (look_up_rows.h);
 * RIGHT_ONLY: all channels meet the preconditions of vi_requantize_right; NO_SHIFT: factors have no
 * shift; SHORT: the preconditions of vi_short_quantized8 hold, too; W_ZERO: the weights' zero point
 * has not been subtracted yet; BYTES: multiply bytes, which requires signed x and no weight of
 * -128. */
#ifndef EK_DWCONV_VALUES_H
#define EK_DWCONV_VALUES_H

#ifdef PITCHED
#define X_PITCH(a) ((a)->x_pitch)
#define PITCH(a) ((a)->pitch)
#else
#define X_PITCH(a) ((long)(a)->win.c)
#define PITCH(a) ((long)(a)->win.c)
#endif

#ifdef FLOAT_X
#include "epilogue.h"
#define BLOCK EK_VL
#define PADS_WITH_ZERO 1
typedef vf sum_t, x_v, weight_v;
typedef ek_real weight_t;
EK_INLINE weight_v weight_at(const weight_t *p, int zero) {
    (void)zero;
    return vf_load(p);
}
EK_INLINE sum_t bias_at(const ek_dwconv_args *a, long c) {
    return BIAS_LAST ? vf_splat(0) : vf_load((const ek_real *)a->bias + c);
}
EK_INLINE x_v x_at(const TX *p) {
    return vf_load(p);
}
EK_INLINE x_v x_at_n(const TX *p, long n) {
    return vf_load_n(p, n);
}
EK_INLINE sum_t multiply_add(sum_t acc, x_v x, weight_v w) {
    return vf_fma(x, w, acc);
}
typedef struct {
    vf low, high;
#if BIAS_LAST
    vf bias;
#endif
    const ek_epilogue *epilogue;
    long channel;
} output;
EK_INLINE output output_at(const ek_dwconv_args *a, long c) {
    output o = {.epilogue = &a->epilogue, .channel = c};
    o.low = vf_bound(a->low_f32);
    o.high = vf_bound(a->high_f32);
#if BIAS_LAST
    o.bias = vf_load((const ek_real *)a->bias + c);
#endif
    return o;
}
/* y[0 .. n) = clamp(sum), requantized for 8-bit types; n >= BLOCK stores a full vector. */
EK_INLINE void finish(const output *o, sum_t sum, TX *y, long n) {
#if BIAS_LAST
    sum += o->bias;
#endif
    const vf made = epilogue(o->epilogue, sum, o->channel);
    const vf v = vf_clamp(made, o->low, o->high);
    if (EK_VL == 1 || n >= EK_VL)
        vf_store(y, v);
    else
        vf_store_n(y, v, n);
}
/* Postprocesses `pixels` finished pixels of complete rows. */
EK_INLINE void finish_rows(const ek_dwconv_args *a, ek_real *y, long pixels) {
    epilogue_rows(&a->epilogue, y, PITCH(a), pixels, 0, a->win.c);
}
#else
#include "look_up_rows.h"
EK_INLINE void finish_rows(const ek_dwconv_args *a, TX *y, long pixels) {
    look_up_rows(a->table, y, PITCH(a), pixels, 0, a->win.c);
}
#define PADS_WITH_ZERO 0
#define X_IS_UNSIGNED ((TX) - 1 > 0)
typedef int8_t weight_t;

EK_INLINE vi scaled(vi sum, const vi_factor *f) {
#if RIGHT_ONLY
    return vi_requantize_right(sum, *f);
#elif NO_SHIFT
    return vi_mulhi(sum, f->multiplier);
#else
    return vi_requantize(sum, *f);
#endif
}

#ifdef EK_QUANTIZED8
/* ARM multiplies widen eight 16-bit values at a time. */
#define BLOCK 8
typedef int8_t bytes_v __attribute__((vector_size(8)));
typedef uint8_t unsigned_v __attribute__((vector_size(8)));
#ifdef BYTES
typedef bytes_v x_v;
#else
typedef int16_t x_v __attribute__((vector_size(16)));
#endif
typedef x_v weight_v;
typedef struct {
    vi low, high;
} sum_t;
EK_INLINE weight_v weight_at(const weight_t *p, int zero) {
    bytes_v v;
    memcpy(&v, p, sizeof v);
#ifdef BYTES
    (void)zero;
    return v;
#else
    return vcast(v, x_v) - (int16_t)zero;
#endif
}
EK_INLINE sum_t bias_at(const ek_dwconv_args *a, long c) {
    const int32_t *p = (const int32_t *)a->bias + c;
    return (sum_t){vi_load(p), vi_load(p + 4)};
}
EK_INLINE x_v x_at(const TX *p) {
    bytes_v v;
    memcpy(&v, p, sizeof v);
#ifdef BYTES
    return v;
#else
    return X_IS_UNSIGNED ? vcast((unsigned_v)v, x_v) : vcast(v, x_v);
#endif
}
static __attribute__((noinline, unused)) x_v x_at_n(const TX *p, long n) {
    TX t[BLOCK] = {0};
    ek_copy_short(t, p, n);
    return x_at(t);
}
#ifdef BYTES
EK_INLINE sum_t add_products(sum_t acc, int16x8_t products) {
    return (sum_t){(vi)vaddw_s16((int32x4_t)acc.low, vget_low_s16(products)),
                   (vi)vaddw_s16((int32x4_t)acc.high, vget_high_s16(products))};
}
EK_INLINE sum_t multiply_add(sum_t acc, x_v x, weight_v w) {
    return add_products(acc, vmull_s8((int8x8_t)x, (int8x8_t)w));
}
/* acc + x . w over n taps; 16 bits hold the sum of two products. */
EK_INLINE sum_t multiply_taps(const int n, sum_t acc, const x_v x[n], const weight_v w[n]) {
    EK_UNROLL
    for (int i = 0; i + 1 < n; i += 2) {
        const int16x8_t first = vmull_s8((int8x8_t)x[i], (int8x8_t)w[i]);
        acc = add_products(acc, vmlal_s8(first, (int8x8_t)x[i + 1], (int8x8_t)w[i + 1]));
    }
    return n % 2 ? multiply_add(acc, x[n - 1], w[n - 1]) : acc;
}
#else
EK_INLINE sum_t multiply_add(sum_t acc, x_v x, weight_v w) {
    return (sum_t){vi_multiply_low(acc.low, x, w), vi_multiply_high(acc.high, x, w)};
}
#endif
typedef struct {
    vi_factor low, high;
    vi_range range;
} output;
EK_INLINE output output_at(const ek_dwconv_args *a, long c) {
    return (output){vi_factor_at(a->multiplier, a->left, a->right, c),
                    vi_factor_at(a->multiplier, a->left, a->right, c + 4),
                    vi_range_of(a->y_zero, a->low, a->high)};
}
EK_INLINE void finish(const output *o, sum_t sum, TX *y, long n) {
    const vi low = scaled(sum.low, &o->low), high = scaled(sum.high, &o->high);
#ifdef SHORT
    const int64_t quantized = vi_short_quantized8(low, high, &o->range, X_IS_UNSIGNED);
#else
    const int64_t quantized = vi_quantized8(low, high, &o->range, X_IS_UNSIGNED);
#endif
    if (n >= BLOCK)
        memcpy(y, &quantized, BLOCK);
    else
        ek_copy_short(y, &quantized, n);
}
#else
#define BLOCK EK_VL
typedef vi sum_t, x_v, weight_v;
EK_INLINE weight_v weight_at(const weight_t *p, int zero) {
    const vi w = vi_from_s8(p) - zero;
#ifdef EK_PAIRS
    return w & 0xFFFF; /* the upper half of x, its sign extension, is multiplied by 0 */
#else
    return w;
#endif
}
EK_INLINE sum_t bias_at(const ek_dwconv_args *a, long c) {
    return vi_load((const int32_t *)a->bias + c);
}
EK_INLINE x_v x_at(const TX *p) {
    return X_IS_UNSIGNED ? vi_from_u8((const uint8_t *)p) : vi_from_s8((const int8_t *)p);
}
EK_INLINE x_v x_at_n(const TX *p, long n) {
    return X_IS_UNSIGNED ? vi_from_u8_n((const uint8_t *)p, n) : vi_from_s8_n((const int8_t *)p, n);
}
EK_INLINE sum_t multiply_add(sum_t acc, x_v x, weight_v w) {
#ifdef EK_PAIRS
    return vi_pair16(acc, x, w);
#else
    return acc + x * w;
#endif
}
typedef struct {
    vi_factor factor;
    int zero, low, high;
} output;
EK_INLINE output output_at(const ek_dwconv_args *a, long c) {
    return (output){vi_factor_at(a->multiplier, a->left, a->right, c), a->y_zero, a->low, a->high};
}
EK_INLINE void finish(const output *o, sum_t sum, TX *y, long n) {
    vi v = scaled(sum, &o->factor) + o->zero;
    v = vi_min(vi_max(v, vi_splat(o->low)), vi_splat(o->high));
    if (EK_VL == 1 || n >= EK_VL)
        vi_to_bytes(y, v);
    else
        vi_to_bytes_n(y, v, n);
}
#endif
#endif
#endif
