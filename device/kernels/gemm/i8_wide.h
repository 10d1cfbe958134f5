/* Steps of 8-bit products whose bytes are widened to 16 bits when read (EK_I8_WIDE16). Included by
 * i8_tile.h, whose types and macros it uses. */
#ifndef EK_GEMM_I8_WIDE_H
#define EK_GEMM_I8_WIDE_H

#if EK_VL > 1
typedef PANEL_TYPE i8_one8 __attribute__((vector_size(EK_VL)));
#else
typedef PANEL_TYPE i8_one8;
#endif
/* A vector of panel bytes minus their zero point: one instruction on RVV, unless the compiler
 * widens the zero point once before the loop. */
#if EK_VL > 1
#define I8_NEAR(zero) __asm__ volatile("" : "+r"(zero))
#else
#define I8_NEAR(zero) ((void)0)
#endif
EK_INLINE vs i8_widened(const i8_value *w, i8_value zero) {
    i8_one8 b;
    memcpy(&b, w, sizeof b);
    I8_NEAR(zero);
    return vcast(b, vs) - vcast(zero - (i8_one8){0}, vs);
}
#if I8_TWO
EK_INLINE i8_two16 i8_widened_two(const i8_value *w, i8_value zero) {
    i8_two8 b;
    memcpy(&b, w, sizeof b);
    I8_NEAR(zero);
    return vcast(b, i8_two16) - vcast(zero - (i8_two8){0}, i8_two16);
}
#endif
EK_INLINE void i8_step(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                       long p, const i8_value *w, vi flips, const i8_rows a) {
    (void)flips;
#if I8_TWO
    EK_UNROLL
    for (int j = 0; j < nv / 2 && nv % 2 == 0; j++) {
        const i8_two16 b = i8_widened_two(w + j * 2 * EK_VL, a.zero);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            sums->two[i][j] += vcast(b, i8_two) * vcast((int16_t)row[i][p] - (i8_two16){0}, i8_two);
    }
    if (nv % 2 == 0)
        return;
#endif
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const vs b = i8_widened(w + j * EK_VL, a.zero);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            sums->of[i][j] =
                vi_wrap_add(sums->of[i][j], vcast(b, vi) * vcast((int16_t)row[i][p] - (vs){0}, vi));
    }
}
#if I8_TWO
typedef int8_t i8_signed8 __attribute__((vector_size(2 * EK_VL)));
/* Two steps along k at a time, for signed bytes where rows or panel contain no -128: 16 bits hold
 * the sum of two products, so only these sums are widened. */
EK_INLINE void i8_step_in_pairs(const int mr, const int nv, i8_sums *sums,
                                const i8_row *const row[MR], long p, long step, const i8_value *w) {
    EK_UNROLL
    for (int j = 0; j < nv / 2; j++, w += 2 * EK_VL) {
        i8_signed8 b[2];
        i8_two16 products[MR];
        memcpy(&b[0], w, sizeof b[0]);
        memcpy(&b[1], w + nv * EK_VL, sizeof b[1]);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            products[i] =
                vcast(b[0], i8_two16) * vcast((int8_t)row[i][p] - (i8_signed8){0}, i8_two16);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            products[i] +=
                vcast(b[1], i8_two16) * vcast((int8_t)row[i][p + step] - (i8_signed8){0}, i8_two16);
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            sums->two[i][j] += vcast(products[i], i8_two);
    }
}
#endif

#endif
