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
#if I8_PAIRED
/* Two weights in one register, w0 + 2^32 w1: its product with a value of a row is that of both. */
EK_INLINE uint64_t i8_both(const i8_value w[2], i8_value zero) {
    return (uint64_t)(int64_t)(w[0] - zero) + ((uint64_t)(int64_t)(w[1] - zero) << 32);
}
/* One step by weights b; `ahead`: fetches those of the next one from w. Sums of a row follow the
 * products of the next one, and loads come early, in an order that the compiler would not keep: an
 * in-order core waits three cycles for a product or a load. */
EK_INLINE void i8_step_paired(const int mr, const int pairs, const int ahead, i8_sums *sums,
                              const i8_row *const row[MR], long p, const i8_value *w, i8_value zero,
                              uint64_t b[(NV + 1) / 2]) {
    uint64_t products[2][(NV + 1) / 2];
    i8_value next[NV + 1];
    int64_t x[MR + 2];
    x[0] = row[0][p];
    x[1] = row[mr > 1][p];
    EK_UNROLL
    for (int i = 0; i <= mr; i++) {
        if (i + 2 < mr)
            x[i + 2] = row[i + 2][p];
        EK_UNROLL
        for (int j = 0; j < pairs; j++) {
            if (ahead && i == (j < mr ? j : mr - 1))
                next[2 * j] = w[2 * j], next[2 * j + 1] = w[2 * j + 1];
            if (i < mr)
                __asm__ volatile("mul %0, %1, %2"
                                 : "=r"(products[i % 2][j])
                                 : "r"(x[i]), "r"(b[j]));
            if (i > 0)
                __asm__ volatile("add %0, %0, %1"
                                 : "+r"(sums->two[i - 1][j])
                                 : "r"(products[(i - 1) % 2][j]));
        }
    }
    EK_UNROLL
    for (int j = 0; ahead && j < pairs; j++)
        b[j] = i8_both(next + 2 * j, zero);
}
/* Four steps. */
EK_INLINE void i8_steps_paired(const int mr, const int pairs, i8_sums *sums,
                               const i8_row *const row[MR], long p, long step, const i8_value *w,
                               i8_value zero) {
    uint64_t b[(NV + 1) / 2];
    EK_UNROLL
    for (int j = 0; j < pairs; j++)
        b[j] = i8_both(w + 2 * j, zero);
    EK_UNROLL
    for (int u = 0; u < 4; u++) {
        w += 2 * pairs;
        i8_step_paired(mr, pairs, u < 3, sums, row, p + u * step, w, zero, b);
    }
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
#elif I8_PAIRED
    if (nv % 2 == 0) {
        uint64_t b[(NV + 1) / 2];
        EK_UNROLL
        for (int j = 0; j < nv / 2; j++)
            b[j] = i8_both(w + 2 * j, a.zero);
        i8_step_paired(mr, nv / 2, 0, sums, row, p, w, a.zero, b);
        return;
    }
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
