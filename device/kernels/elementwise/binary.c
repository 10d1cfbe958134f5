/* Element-wise addition and multiplication, f32 and quantized, and s16 PRELU.
 *
 * Compile-time parameters: NAME, EK_SIMD, TX (float, int8_t, uint8_t, int16_t), and OP_ADD, OP_MUL
 * or OP_PRELU. OP_EVEN: 8-bit values are computed in f32 and rounded once, halves to even, as ONNX
 * Runtime does. For other quantized sums with all factors at most 1/2, A_RIGHT and B_RIGHT: 0 if
 * a's (b's) right shift is 0. */
#include "binary.h"

#ifdef FLOAT_X
EK_INLINE TX combine(const ek_binary_args *g, TX a, TX b) {
    const TX low = (TX)g->low_f32, high = (TX)g->high_f32;
#ifdef OP_ADD
    TX v = a + b;
#else
    TX v = a * b;
#endif
    v = EK_AT_LEAST(v, low);
    return EK_AT_MOST(v, high);
}

/* One contiguous run of y; step 0 broadcasts the operand. */
static void run(const ek_binary_args *args, const TX *restrict a, long a_step, const TX *restrict b,
                long b_step, TX *restrict y, long n) {
    const ek_binary_args g = *args; /* a copy, because stores to y might alias it */
    if (a_step && b_step) {
        EK_VECTOR_LOOP
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[i], b[i]);
    } else if (a_step) {
        EK_VECTOR_LOOP
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[i], b[0]);
    } else if (b_step) {
        EK_VECTOR_LOOP
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[0], b[i]);
    } else {
        EK_VECTOR_LOOP
        for (long i = 0; i < n; i++)
            y[i] = combine(&g, a[0], b[0]);
    }
}
#else
EK_INLINE vi scale(vi x, int32_t multiplier, int left, int right) {
    const vi_factor f = {vi_splat(multiplier), vi_splat(left), vi_splat(right)};
    return vi_requantize(x, f);
}
#ifdef OP_EVEN
/* a * b + c, rounded once */
EK_INLINE vf fused(vf a, vf b, vf c) {
#if EK_FMA
    return vf_fma(a, b, c);
#else
    for (int l = 0; l < EK_VL; l++) /* 8 and 24 bits: the product is exact */
        vlane(c, l) = (float)((double)vlane(a, l) * (double)vlane(b, l) + (double)vlane(c, l));
    return c;
#endif
}
#endif
EK_INLINE vi combine(const ek_binary_args *g, vi a, vi b) {
    a -= g->a_zero;
    b -= g->b_zero;
#if defined OP_EVEN && defined OP_ADD
    const vf inner = fused(vcast(b, vf), vf_splat(g->b_scale), vf_splat(g->addend));
    return vi_nearest_even(fused(vcast(a, vf), vf_splat(g->a_scale), inner));
#elif defined OP_EVEN
    const vf scaled = vcast(a * b, vf) * vf_splat(g->a_scale); /* rounded: not to be fused */
    return vi_nearest_even(scaled + vf_splat(g->addend));
#elif defined A_RIGHT
    /* 9 bits shifted by 20, or 16 by 15, leave headroom for rounding */
    a = vi_mulhi(a * (1 << g->shift), vi_splat(g->a_multiplier));
    b = vi_mulhi(b * (1 << g->shift), vi_splat(g->b_multiplier));
    a = A_RIGHT ? vi_shift_right(a, vi_splat(g->a_right)) : a;
    b = B_RIGHT ? vi_shift_right(b, vi_splat(g->b_right)) : b;
    return vi_shift_right(vi_mulhi(a + b, vi_splat(g->y_multiplier)), vi_splat(g->y_right));
#elif defined OP_PRELU
    /* one of the two is 0 */
    const vi above = vi_max(a, vi_splat(0)), below = vi_min(a, vi_splat(0)) * b;
    return scale(above, g->a_multiplier, g->a_left, g->a_right) +
           scale(below, g->y_multiplier, g->y_left, g->y_right);
#elif defined OP_ADD
    vi raw = scale(a * (1 << g->shift), g->a_multiplier, g->a_left, g->a_right) +
             scale(b * (1 << g->shift), g->b_multiplier, g->b_left, g->b_right);
    return scale(raw, g->y_multiplier, g->y_left, g->y_right);
#else
    return scale(a * b, g->y_multiplier, g->y_left, g->y_right);
#endif
}
EK_INLINE vi saturated(const ek_binary_args *g, vi v) {
    return vi_min(vi_max(v + g->y_zero, vi_splat(g->low)), vi_splat(g->high));
}
#ifdef WIDE
EK_INLINE vi load(const TX *p) {
    return vi_from_s16(p);
}
EK_INLINE vi load_n(const TX *p, long n) {
    return vi_from_s16_n(p, n);
}
EK_INLINE void store(TX *p, vi v) {
    vi_to_s16(p, v);
}
EK_INLINE void store_n(TX *p, vi v, long n) {
    vi_to_s16_n(p, v, n);
}
#else
EK_INLINE vi load(const TX *p) {
    return (TX)-1 > 0 ? vi_from_u8((const uint8_t *)p) : vi_from_s8((const int8_t *)p);
}

EK_INLINE vi load_n(const TX *p, long n) {
    return (TX)-1 > 0 ? vi_from_u8_n((const uint8_t *)p, n) : vi_from_s8_n((const int8_t *)p, n);
}
EK_INLINE void store(TX *p, vi v) {
    vi_to_bytes(p, v);
}
EK_INLINE void store_n(TX *p, vi v, long n) {
    vi_to_bytes_n(p, v, n);
}
#endif

/* One contiguous run of y; step 0 broadcasts the operand. */
static void run(const ek_binary_args *args, const TX *a, long a_step, const TX *b, long b_step,
                TX *y, long n) {
    const ek_binary_args g = *args; /* a copy, because stores to y might alias it */
    long i = 0;
#if defined EK_QUANTIZED8 && !defined WIDE
    const vi_range range = vi_range_of(g.y_zero, g.low, g.high);
    for (; i + 8 <= n; i += 8) {
        const vi a_low = a_step ? load(a + i) : vi_splat(a[0]);
        const vi a_high = a_step ? load(a + i + 4) : a_low;
        const vi b_low = b_step ? load(b + i) : vi_splat(b[0]);
        const vi b_high = b_step ? load(b + i + 4) : b_low;
        const int64_t both = vi_quantized8(combine(&g, a_low, b_low), combine(&g, a_high, b_high),
                                           &range, (TX)-1 > 0);
        memcpy(y + i, &both, 8);
    }
#endif
    for (; i + EK_VL <= n; i += EK_VL) {
        vi va = a_step ? load(a + i) : vi_splat(a[0]), z = b_step ? load(b + i) : vi_splat(b[0]);
        store(y + i, saturated(&g, combine(&g, va, z)));
    }
    if (i < n) {
        vi va = a_step ? load_n(a + i, n - i) : vi_splat(a[0]);
        vi z = b_step ? load_n(b + i, n - i) : vi_splat(b[0]);
        store_n(y + i, saturated(&g, combine(&g, va, z)), n - i);
    }
}
#endif

/* Task: one chunk of a row. */
void NAME(const void *args, long begin, long end) {
    const ek_binary_args *g = args;
    const int last = EK_BINARY_DIMS - 1;
    for (long t = begin, rows; t < end; t += rows) {
        long row = t / g->chunks, from = t % g->chunks * EK_BINARY_CHUNK;
        long a_at = from * g->a_stride[last], b_at = from * g->b_stride[last];
        long y_at = row * g->dim[last] + from, outer = row;
        for (int d = last - 1; d >= 0; d--) {
            long i = outer % g->dim[d];
            outer /= g->dim[d];
            a_at += i * g->a_stride[d];
            b_at += i * g->b_stride[d];
        }
        /* Rows of the second to last dimension are contiguous; compute short ones together instead
         * of indexing each. */
        const long n = ek_min(EK_BINARY_CHUNK, g->dim[last] - from);
        rows = g->chunks > 1 ? 1 : ek_min(end - t, g->dim[last - 1] - row % g->dim[last - 1]);
        const TX *a = (const TX *)g->a + a_at, *b = (const TX *)g->b + b_at;
        TX *y = (TX *)g->y + y_at;
        for (long r = 0; r < rows; r++, y += n) {
            run(g, a, g->a_stride[last], b, g->b_stride[last], y, n);
            a += g->a_stride[last - 1];
            b += g->b_stride[last - 1];
        }
    }
}
