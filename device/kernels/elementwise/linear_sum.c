/* Sum of 8-bit codes as a linear form; the host has found that it equals the addition for all pairs
 * of codes. Factors of 30 bits are two of 16, so that each part is one product of pairs.
 *
 * Compile-time parameters: NAME, EK_SIMD (one with EK_PAIRS), TX (int8_t, uint8_t). */
#include "../kernel.h"

typedef struct {
    long n;
    const void *a, *b;
    void *y;
    int a_high, a_low, b_high, b_low; /* parts of the factors, each an s16 */
    int addend_high, addend_low;
    int shift; /* of the upper parts: what is left when the lower bits are off */
    int low, high;
} ek_linear_sum_args;

typedef struct {
    vi high_factors, low_factors;
} factors;

EK_INLINE vi pair(vi a, vi b) {
    return (a & 0xFFFF) | b << 16;
}
EK_INLINE vi sum(const ek_linear_sum_args *g, const factors *f, vi a, vi b) {
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

/* Tasks: chunks of EK_LINEAR_SUM_CHUNK elements. */
void NAME(const void *args, long begin, long end) {
    const ek_linear_sum_args g = *(const ek_linear_sum_args *)args; /* no store can change a copy */
    const factors f = {pair(vi_splat(g.a_high), vi_splat(g.b_high)),
                       pair(vi_splat(g.a_low), vi_splat(g.b_low))};
    const TX *a = g.a, *b = g.b;
    TX *y = g.y;
    const long until = ek_min(end * EK_LINEAR_SUM_CHUNK, g.n);
    long i = begin * EK_LINEAR_SUM_CHUNK;
    for (; i + EK_VL <= until; i += EK_VL)
        vi_to_bytes(y + i, sum(&g, &f, load(a + i), load(b + i)));
    if (i < until)
        vi_to_bytes_n(y + i, sum(&g, &f, load_n(a + i, until - i), load_n(b + i, until - i)),
                      until - i);
}
