/* How sums of 8-bit products become outputs of 8 bits, for conv/i8_conv.c and conv/i8_winograd.c.
 *
 * Before inclusion: TY, conv_args (the kernel's arguments) and optionally the macros of
 * conv/i8_conv.c that say how sums are requantized. */
#ifndef EK_I8_FINISH_H
#define EK_I8_FINISH_H
#include "../kernel.h"

#ifndef EK_IN_ORDER
#define EK_IN_ORDER 0
#endif

/* The bias makes sums 2^31 too large, as vi_requantize_unsigned expects. */
#if defined RIGHT_ONLY && defined EK_UNSIGNED_SUMS
#define UNSIGNED_SUMS 1
#else
#define UNSIGNED_SUMS 0
#endif
EK_INLINE vi bias_at(const conv_args *a, long channel) {
    const vi bias = vi_load(a->bias + channel);
    return UNSIGNED_SUMS ? bias ^ INT32_MIN : bias;
}

#ifndef FLOAT_OUTPUT
/* Parameters that convert the sums of one vector of channels to outputs. */
#ifdef FLOAT_REQUANT
#define ADDED_ZERO(a) -EK_LINE_ZERO
#else
#define ADDED_ZERO(a) (a)->y_zero
#endif
#ifdef ROUND_ONCE
typedef struct {
    vi multiplier, right;
} output;
EK_INLINE output output_at(const int plain, const conv_args *a, long channel) {
    (void)plain;
    return (output){vi_load(a->multiplier + channel), vi_load(a->right + channel)};
}
EK_INLINE vi scaled(const output *o, vi sum) {
    return vi_requantize_once(sum, o->multiplier, o->right);
}
#elif defined FLOAT_REQUANT
typedef struct {
    vf slope[FLOAT_REQUANT], offset[FLOAT_REQUANT];
    const float *offset_at[FLOAT_REQUANT];
} output;
EK_INLINE output output_at(const int plain, const conv_args *a, long channel) {
    (void)plain;
    const float *const slope[] = {a->slope, a->second_slope};
    const float *const offset[] = {a->offset, a->second_offset};
    output o;
    EK_UNROLL
    for (int l = 0; l < FLOAT_REQUANT; l++) {
        o.slope[l] = vf_load(slope[l] + channel);
        o.offset_at[l] = offset[l] + channel;
        o.offset[l] = vf_load(o.offset_at[l]);
    }
    return o;
}
EK_INLINE vi scaled(const output *o, vi sum) {
    EK_UNROLL
    for (int l = 0; l < FLOAT_REQUANT; l++)
        sum = vi_line(sum, o->slope[l], o->offset[l]);
    return sum;
}
/* Reload the offset: the FMA overwrites it, and the copy would occupy the multiply units. On
 * out-of-order cores a load costs less. */
EK_INLINE void reload_offset(output *o) {
    EK_UNROLL
    for (int l = 0; l < FLOAT_REQUANT && !EK_IN_ORDER; l++) {
        EK_OPAQUE_INDEX(o->offset_at[l]);
        o->offset[l] = vf_load(o->offset_at[l]);
    }
}
#else
#if UNSIGNED_SUMS
typedef vi_unsigned_factor output;
#else
typedef vi_factor output;
#endif
EK_INLINE output output_at(const int plain, const conv_args *a, long channel) {
    (void)plain;
    const vi_factor factor = vi_factor_at(a->multiplier, a->left, a->right, channel);
#if UNSIGNED_SUMS
    return vi_unsigned_factor_of(factor);
#else
    return factor;
#endif
}
EK_INLINE vi scaled(const output *o, vi sum) {
#if UNSIGNED_SUMS
    return vi_requantize_unsigned(sum, *o);
#elif defined RIGHT_ONLY
    return vi_requantize_right(sum, *o);
#elif defined NO_SHIFT
    return vi_mulhi(sum, o->multiplier);
#else
    return vi_requantize(sum, *o);
#endif
}
#endif
EK_INLINE void finish(const int plain, const int full, const conv_args *a, const output *o, vi sum,
                      TY *y, long left, long pixel) {
    (void)plain, (void)pixel;
    vi v = vi_min(vi_max(scaled(o, sum) + ADDED_ZERO(a), vi_splat(a->low)), vi_splat(a->high));
    if (full || EK_VL == 1 || left >= EK_VL)
        vi_to_bytes(y, v);
    else
        vi_to_bytes_n(y, v, left);
}

#if defined EK_QUANTIZED8 || defined EK_QUANTIZED64
#define FINISHES_FULL 1
#ifdef EK_QUANTIZED64
#define STORE_GROUP 4
#else
#define STORE_GROUP 2
#endif
EK_INLINE void store_quantized(const vi v[STORE_GROUP], const vi_range *range,
                               TY *const y[STORE_GROUP]) {
#ifdef EK_QUANTIZED64
    const vi all = vi_quantized64(v, range, (TY)-1 > 0);
#elif defined FLOAT_REQUANT
    const int64_t all = vi_low_quantized8(v[0], v[1], (TY)-1 > 0);
    (void)range;
#elif defined SHORT
    const int64_t all = vi_short_quantized8(v[0], v[1], range, (TY)-1 > 0);
#else
    const int64_t all = vi_quantized8(v[0], v[1], range, (TY)-1 > 0);
#endif
    EK_UNROLL
    for (int q = 0; q < STORE_GROUP; q++)
        memcpy(y[q], (const char *)&all + q * EK_VL, EK_VL);
}
#endif
#endif

#ifndef FINISHES_FULL
#define FINISHES_FULL 0
#endif
#endif
