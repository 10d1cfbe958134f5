/* Step of i8_tile.h for rows of 16-bit values: sums of two products at once (vi_pair16). */
#ifndef EK_GEMM_I8_PAIRS_H
#define EK_GEMM_I8_PAIRS_H

typedef int16_t i8_pairs16 __attribute__((vector_size(4 * EK_VL)));
#if EK_I8 == EK_I8_PAIR16
typedef PANEL_TYPE i8_pairs8 __attribute__((vector_size(2 * EK_VL)));
/* Loads the pairs of a vector of columns, widened, minus their zero point. */
EK_INLINE vi i8_pairs(const i8_value *w, int pair, i8_value zero) {
    (void)pair;
    i8_pairs8 b;
    memcpy(&b, w, sizeof b);
    return (vi)(vcast(b, i8_pairs16) - (int16_t)zero);
}
#else
typedef uint16_t i8_fours16 __attribute__((vector_size(4 * EK_VL)));
/* Likewise for groups of four: `pair` selects the first or second pairs. */
EK_INLINE vi i8_pairs(const i8_value *w, int pair, i8_value zero) {
    i8_fours16 b;
    memcpy(&b, w, sizeof b);
    if (pair == 0)
        b <<= 8;
    const i8_pairs16 wide = (PANEL_TYPE)-1 > 0 ? (i8_pairs16)(b >> 8) : (i8_pairs16)b >> 8;
    return (vi)(wide - (int16_t)zero);
}
#endif

/* Forces each product to be added before the next: the compiler would compute all products first
 * and spill them. */
#define I8_ADDED(sum) __asm__("" : "+x"(sum))
EK_INLINE void i8_step(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                       long p, const i8_value *w, vi flips, const i8_rows a) {
    (void)flips;
    EK_UNROLL
    for (int pair = 0; pair < I8_GROUP / 2; pair++) {
        if (pair && mr > 2)
            __asm__("" : "+r"(w)); /* otherwise the groups occupy registers that sums need */
        vi b[NV];
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            b[j] = i8_pairs(w + j * EK_VL * I8_GROUP, pair, a.zero);
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            int32_t pairs;
            memcpy(&pairs, row[i] + p + 2 * pair, sizeof pairs);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                sums->of[i][j] = vi_pair16(sums->of[i][j], vi_splat(pairs), b[j]);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                I8_ADDED(sums->of[i][j]);
        }
    }
}
#endif
