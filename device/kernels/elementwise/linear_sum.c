/* Sum of 8-bit quantized tensors as a linear form; the host has verified that it equals the
 * reference addition for all pairs of values. 30-bit factors are split into two 16-bit parts, so
 * that each takes one 16-bit multiplication.
 *
 * Compile-time parameters: NAME, EK_SIMD (one with EK_PAIRS or EK_QUANTIZED8), TX (int8_t,
 * uint8_t). */
#include "../kernel.h"

typedef struct {
    long n;             /* elements of a row */
    long rows, at_once; /* rows, and how many a task adds; 1 row: tasks are chunks of it */
    long pitch;         /* elements between rows of y; those of a and b are adjacent */
    const void *a, *b;
    void *y;
    int a_high, a_low, b_high, b_low; /* parts of the factors, each an s16 */
    int addend_high, addend_low;
    int shift; /* right shift of the upper part's sum */
    int low, high;
} ek_linear_sum_args;

#ifdef EK_QUANTIZED8
/* Inputs are pre-shifted so that the sum lies above its lower 16 bits: one instruction adds the
 * addend and narrows, the next drops the remaining fraction and narrows to 8 bits. */
#define AT_ONCE 16
typedef struct {
    int16x8_t a_high, a_low, b_high, b_low;
    int32x4_t addend;
    uint8x16_t least, most;
} factors;
EK_INLINE factors factors_of(const ek_linear_sum_args *g) {
    return (factors){
        vdupq_n_s16((int16_t)g->a_high), vdupq_n_s16((int16_t)g->a_low),
        vdupq_n_s16((int16_t)g->b_high), vdupq_n_s16((int16_t)g->b_low),
        vdupq_n_s32(g->addend_high),     vdupq_n_u8((uint8_t)g->low),
        vdupq_n_u8((uint8_t)g->high),
    };
}
EK_INLINE int16x4_t sum4(const factors *f, int16x4_t a, int16x4_t b) {
    const int32x4_t low =
        vmlal_s16(vmull_s16(a, vget_low_s16(f->a_low)), b, vget_low_s16(f->b_low));
    const int32x4_t high =
        vmlal_s16(vmull_s16(a, vget_low_s16(f->a_high)), b, vget_low_s16(f->b_high));
    return vaddhn_s32(vsraq_n_s32(high, low, EK_LINEAR_SUM_BITS), f->addend);
}
EK_INLINE int16x8_t sum8(const factors *f, int16x8_t a, int16x8_t b) {
    return vcombine_s16(sum4(f, vget_low_s16(a), vget_low_s16(b)),
                        sum4(f, vget_high_s16(a), vget_high_s16(b)));
}
EK_INLINE int16x8_t widened(const uint8x8_t values) {
    const int16x8_t v = (TX)-1 > 0 ? (int16x8_t)vshll_n_u8(values, EK_LINEAR_SUM_WIDENING)
                                   : vshll_n_s8((int8x8_t)values, EK_LINEAR_SUM_WIDENING);
    return v;
}
EK_INLINE void add(const factors *f, const TX *a, const TX *b, TX *y) {
    const uint8x16_t x = vld1q_u8((const uint8_t *)a), z = vld1q_u8((const uint8_t *)b);
    const int16x8_t first = sum8(f, widened(vget_low_u8(x)), widened(vget_low_u8(z)));
    const int16x8_t second = sum8(f, widened(vget_high_u8(x)), widened(vget_high_u8(z)));
    if ((TX)-1 > 0) {
        const uint8x16_t values = vcombine_u8(vqshrun_n_s16(first, EK_LINEAR_SUM_FRACTION),
                                              vqshrun_n_s16(second, EK_LINEAR_SUM_FRACTION));
        vst1q_u8((uint8_t *)y, vminq_u8(vmaxq_u8(values, f->least), f->most));
    } else {
        const int8x16_t values = vcombine_s8(vqshrn_n_s16(first, EK_LINEAR_SUM_FRACTION),
                                             vqshrn_n_s16(second, EK_LINEAR_SUM_FRACTION));
        vst1q_s8((int8_t *)y, vminq_s8(vmaxq_s8(values, (int8x16_t)f->least), (int8x16_t)f->most));
    }
}
static void __attribute__((noinline)) add_n(const factors *f, const TX *a, const TX *b, TX *y,
                                            long n) {
    TX x[AT_ONCE] = {0}, z[AT_ONCE] = {0};
    ek_copy_short(x, a, n);
    ek_copy_short(z, b, n);
    add(f, x, z, x);
    ek_copy_short(y, x, n);
}
#else
#define AT_ONCE EK_VL
typedef struct {
    const ek_linear_sum_args *g;
    vi high_factors, low_factors;
} factors;

EK_INLINE vi pair(vi a, vi b) {
    return (a & 0xFFFF) | b << 16;
}
EK_INLINE factors factors_of(const ek_linear_sum_args *g) {
    return (factors){g, pair(vi_splat(g->a_high), vi_splat(g->b_high)),
                     pair(vi_splat(g->a_low), vi_splat(g->b_low))};
}
EK_INLINE vi sum(const factors *f, vi a, vi b) {
    const ek_linear_sum_args *g = f->g;
    const vi both = pair(a, b);
    const vi low = vi_pair16(vi_splat(g->addend_low), both, f->low_factors) >> EK_LINEAR_SUM_BITS;
    const vi v = vi_pair16(low + g->addend_high, both, f->high_factors) >> g->shift;
    return vi_min(vi_max(v, vi_splat(g->low)), vi_splat(g->high));
}
EK_INLINE vi load(const TX *p) {
    return (TX)-1 > 0 ? vi_from_u8((const uint8_t *)p) : vi_from_s8((const int8_t *)p);
}
EK_INLINE vi load_n(const TX *p, long n) {
    return (TX)-1 > 0 ? vi_from_u8_n((const uint8_t *)p, n) : vi_from_s8_n((const int8_t *)p, n);
}
EK_INLINE void add(const factors *f, const TX *a, const TX *b, TX *y) {
    vi_to_bytes(y, sum(f, load(a), load(b)));
}
EK_INLINE void add_n(const factors *f, const TX *a, const TX *b, TX *y, long n) {
    vi_to_bytes_n(y, sum(f, load_n(a, n), load_n(b, n)), n);
}
#endif

EK_INLINE void add_row(const factors *f, const TX *a, const TX *b, TX *y, long n) {
    long i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE)
        add(f, a + i, b + i, y + i);
    if (i < n)
        add_n(f, a + i, b + i, y + i, n - i);
}

/* Task: one chunk of EK_LINEAR_SUM_CHUNK elements, or at_once rows. */
void NAME(const void *args, long begin, long end) {
    const ek_linear_sum_args g = *(const ek_linear_sum_args *)args; /* a copy cannot be aliased */
    const factors f = factors_of(&g);
    const TX *a = g.a, *b = g.b;
    TX *y = g.y;
    const long row = begin * g.at_once;
    long n = g.n, rows = ek_min(end * g.at_once, g.rows) - row, from = row * g.n,
         to = row * g.pitch;
    if (g.rows == 1) {
        from = to = begin * EK_LINEAR_SUM_CHUNK;
        n = ek_min(end * EK_LINEAR_SUM_CHUNK, n) - from;
        rows = 1;
    }
    for (; rows > 0; rows--, from += g.n, to += g.pitch)
        add_row(&f, a + from, b + from, y + to, n);
}
