/* group_sums of grouped_row.c for 4 bits and EK_I8_WIDE16 (RVV). */
#ifndef EK_OUTLIER_INT4_ROW_WIDE_H
#define EK_OUTLIER_INT4_ROW_WIDE_H

#define SUM_UNIT 1.0f
#define MOST 16 /* steps, of two products of -127..127 and -8..7 each, whose sums fit 16 bits */
#define TWO ((NV + 1) / 2)

/* Keeps the compiler, which knows no latencies, from computing one value after the other. */
#define TOGETHER(a, b, c, d) __asm__ volatile("" : "+vr"(a), "+vr"(b), "+vr"(c), "+vr"(d))

EK_INLINE i8_two16 products(pairs v, const int8_t *x) {
    return vcast((i8_signed8)v, i8_two16) * vcast(*x - (i8_signed8){0}, i8_two16);
}

/* Two steps of two vectors each; s: sums of low halves, of high ones. */
EK_INLINE void two_steps(i8_two16 s[2][TWO], const int8_t *x, const uint8_t *w) {
    pairs low[4], high[4];
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        low[i] = pairs_at(w + i * 2 * EK_VL);
    TOGETHER(low[0], low[1], low[2], low[3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        high[i] = (pairs)((i8_signed8)low[i] >> 4), low[i] <<= 4;
    TOGETHER(low[0], low[1], low[2], low[3]);
    TOGETHER(high[0], high[1], high[2], high[3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        low[i] = (pairs)((i8_signed8)low[i] >> 4);
    TOGETHER(low[0], low[1], low[2], low[3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        s[0][i % 2] += products(low[i], x + i / 2);
        s[1][i % 2] += products(high[i], x + HALF + i / 2);
    }
}

EK_INLINE void one_step(const int nv, i8_two16 s[2][TWO], const int8_t *x, const uint8_t *w) {
    EK_UNROLL
    for (int j = 0; j < (nv + 1) / 2; j++) {
        pairs both = {0}; /* the last vector of an odd number is alone */
        memcpy(&both, w + j * 2 * EK_VL, 2 * j + 1 < nv ? 2 * EK_VL : EK_VL);
        const i8_signed8 low = (i8_signed8)(both << 4) >> 4, high = (i8_signed8)both >> 4;
        s[0][j] += products((pairs)low, x);
        s[1][j] += products((pairs)high, x + HALF);
    }
}

EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w, vi *to) {
    (void)sum;
    i8_two all[TWO] = {0};
    for (long from = 0; from < HALF; from += MOST) {
        const long until = ek_min(from + MOST, HALF);
        i8_two16 s[2][TWO] = {0};
        long p = from;
        for (; nv == 4 && p + 4 <= until; p += 4, w += 4 * nv * EK_VL) {
            two_steps(s, x + p, w);
            two_steps(s, x + p + 2, w + 2 * nv * EK_VL);
        }
        for (; p < until; p++, w += nv * EK_VL)
            one_step(nv, s, x + p, w);
        EK_UNROLL
        for (int j = 0; j < (nv + 1) / 2; j++)
            all[j] += vcast(s[0][j] + s[1][j], i8_two);
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const i8_two both = all[j / 2];
        to[j] = j % 2 ? __builtin_shufflevector(both, both, 8, 9, 10, 11, 12, 13, 14, 15)
                      : __builtin_shufflevector(both, both, 0, 1, 2, 3, 4, 5, 6, 7);
    }
}
#endif
