/* Operations on bytes of weights, for cores in order with dot products in the order of the source:
 * these issue a load beside an operation on a whole vector, but compilers put loads together, and
 * compute one vector after the other, where each operation waits for its operand. */
#ifndef EK_OUTLIER_ORDERED_H
#define EK_OUTLIER_ORDERED_H

/* EK_VL scales, as stored. */
typedef uint8_t scale_bits __attribute__((vector_size(SCALES == STREAM_F32 ? 16 : 8)));

#if EK_IN_ORDER && EK_I8 == EK_I8_DOT4_SS
EK_INLINE pairs ordered_load(const void *from, const int at) {
    pairs v;
    if (__builtin_constant_p(at))
        __asm__ volatile("ldr %q0, [%1, %2]" : "=w"(v) : "r"(from), "i"(at) : "memory");
    else
        __asm__ volatile("ldr %q0, [%1, %x2]" : "=w"(v) : "r"(from), "r"((long)at) : "memory");
    return v;
}

/* Loads take none of the ports of operations on vectors, as constants and copies do. */
EK_INLINE vi ordered_zero(void) {
    static const vi zero;
    vi v;
    __asm__ volatile("ldr %q0, %1" : "=w"(v) : "m"(zero));
    return v;
}

EK_INLINE vi ordered_splat(const int32_t *p, vi after) {
    vi v;
    __asm__ volatile("ld1r {%0.4s}, [%1]" : "=w"(v) : "r"(p), "m"(*p), "w"(after));
    return v;
}

EK_INLINE pairs ordered_and(pairs v, const uint8_t mask) {
    const pairs all = mask - (pairs){0};
    __asm__ volatile("and %0.16b, %1.16b, %2.16b" : "=w"(v) : "w"(v), "w"(all));
    return v;
}

EK_INLINE pairs ordered_left4(pairs v) {
    __asm__ volatile("shl %0.16b, %1.16b, #4" : "=w"(v) : "w"(v));
    return v;
}

/* What is made of sums is behind what the source has before. */
EK_INLINE void ordered_behind(vi sum[4]) {
    __asm__ volatile("" : "+w"(sum[0]), "+w"(sum[1]), "+w"(sum[2]), "+w"(sum[3]));
}

EK_INLINE scale_bits ordered_here(scale_bits v) {
    __asm__ volatile("" : "+w"(v));
    return v;
}

#define ORDERED_DOT(l)                                                                             \
    __asm__ volatile("sdot %0.4s, %1.16b, %2.4b[" #l "]" : "+w"(sum) : "w"(w), "w"(x))

/* sum + w times group l of x. */
EK_INLINE vi ordered_dot(vi sum, pairs x, const int l, pairs w) {
    if (l == 0)
        ORDERED_DOT(0);
    else if (l == 1)
        ORDERED_DOT(1);
    else if (l == 2)
        ORDERED_DOT(2);
    else
        ORDERED_DOT(3);
    return sum;
}
#else
EK_INLINE pairs ordered_load(const void *from, const int at) {
    pairs v;
    memcpy(&v, (const uint8_t *)from + at, sizeof v);
    return v;
}

EK_INLINE vi ordered_zero(void) {
    return vi_splat(0);
}

EK_INLINE vi ordered_splat(const int32_t *p, vi after) {
    (void)after;
    return vi_splat(*p);
}

EK_INLINE pairs ordered_and(pairs v, const uint8_t mask) {
    return v & mask;
}

EK_INLINE void ordered_behind(vi sum[4]) {
    (void)sum;
}

EK_INLINE scale_bits ordered_here(scale_bits v) {
    return v;
}

EK_INLINE pairs ordered_left4(pairs v) {
    return v << 4;
}

EK_INLINE vi ordered_dot(vi sum, pairs x, const int l, pairs w) {
    return vi_dot4(sum, vi_splat(((vi)x)[l]), (vi)w);
}
#endif
#endif
