/* group_sums of grouped_row.c for 2 bits: values plus 2, whose excess is taken off at the end.
 * Values that stay in upper bits of their bytes count as multiples where such sums fit. */
#ifndef EK_OUTLIER_INT2_ROW_H
#define EK_OUTLIER_INT2_ROW_H

#define SUM_UNIT 1.0f
_Static_assert(GROUPS <= 512, "64 products of -127..127 and 0..3 fit 16 bits");

#if EK_I8 == EK_I8_DOT4_SS
/* The values of a quarter in their bytes. */
EK_INLINE vi quarter_of(pairs all, const int q) {
    return (vi)(q == 3 ? all >> 6 : all & (uint8_t)(3 << 2 * q));
}

EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w,
                          const uint8_t *last, vi *to) {
    (void)last;
    vi s[3][NV]; /* times 1, 4 and 16 */
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        s[0][j] = vi_splat(-2 * sum), s[1][j] = s[2][j] = vi_splat(0);
    for (long p = 0; p < QUARTER; p += I8_STEP) {
        const int steps = (int)ek_min(EK_VL, (QUARTER - p) / I8_GROUP), bytes = nv * EK_VL * 4;
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(x + q * QUARTER + p);
        const uint8_t *const ahead = w;
        pairs next[NV];
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            next[j] = pairs_at(w + j * 16);
        EK_UNROLL
        for (int l = 0; l < steps; l++) {
            pairs all[NV];
            prefetch(ahead, l * bytes, (l + 1) * bytes);
            w += bytes;
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                all[j] = next[j];
                if (l + 1 < steps)
                    next[j] = pairs_at(w + j * 16);
            }
            TOGETHER(nv, next);
            EK_UNROLL
            for (int q = 0; q < 4; q++) {
                vi part[NV];
                EK_UNROLL
                for (int j = 0; j < nv; j++)
                    part[j] = quarter_of(all[j], q);
                TOGETHER(nv, part);
                EK_UNROLL
                for (int j = 0; j < nv; j++)
                    s[q % 3][j] = vi_dot4(s[q % 3][j], vi_splat(of[q][l]), part[j]);
                TOGETHER(nv, s[q % 3]);
            }
        }
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = s[0][j] + (s[1][j] >> 2) + (s[2][j] >> 4);
}
#elif EK_I8 == EK_I8_MULL16
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w,
                          const uint8_t *last, vi *to) {
    (void)last;
    const int bytes = nv * EK_VL * I8_STEP;
    vi_short s[NV * EK_VL] = {0};
    for (long p = 0; p < QUARTER; p += I8_STEP, w += bytes) {
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(x + q * QUARTER + p);
        EK_UNROLL
        for (int j = 0; j < nv * EK_VL; j++) {
            prefetch(w, j * 16, (j + 1) * 16);
            const pairs all = pairs_at(w + j * 16);
            const vi parts[4] = {(vi)(all & 3), (vi)(all >> 2 & 3), (vi)(all >> 4 & 3),
                                 (vi)(all >> 6)};
            EK_UNROLL
            for (int q = 0; q < 4; q++) {
                s[j] = vi_mlal8(s[j], of[q], parts[q], 0);
                s[j] = vi_mlal8(s[j], of[q], parts[q], 1);
            }
        }
    }
    sum_columns(nv, s, 2 * sum, to);
}
#endif
#endif
