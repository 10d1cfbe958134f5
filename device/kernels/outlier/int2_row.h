/* group_sums of grouped_row.c for 2 bits: values plus 2, whose excess is taken off at the end. Values
 * that stay in upper bits of their bytes count as multiples where such sums fit. */
#ifndef EK_OUTLIER_INT2_ROW_H
#define EK_OUTLIER_INT2_ROW_H

#define SUM_UNIT 1.0f
_Static_assert(GROUPS <= 512, "64 products of -127..127 and 0..3 fit 16 bits");

#if EK_I8 == EK_I8_DOT4_SS
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w, vi *to) {
    vi fours[NV], sixteens[NV];
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = vi_splat(-2 * sum), fours[j] = sixteens[j] = vi_splat(0);
    for (long p = 0; p < QUARTER; p += I8_STEP) {
        const int steps = (int)ek_min(EK_VL, (QUARTER - p) / I8_GROUP), bytes = nv * EK_VL * 4;
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(x + q * QUARTER + p);
        prefetch(w, steps * bytes);
        EK_UNROLL
        for (int l = 0; l < steps; l++, w += bytes) {
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                const pairs all = pairs_at(w + j * 16);
                to[j] = vi_dot4(to[j], vi_splat(of[0][l]), (vi)(all & 3));
                fours[j] = vi_dot4(fours[j], vi_splat(of[1][l]), (vi)(all & 0x0c));
                sixteens[j] = vi_dot4(sixteens[j], vi_splat(of[2][l]), (vi)(all & 0x30));
                to[j] = vi_dot4(to[j], vi_splat(of[3][l]), (vi)(all >> 6));
            }
        }
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] += (fours[j] >> 2) + (sixteens[j] >> 4);
}
#elif EK_I8 == EK_I8_MULL16
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w, vi *to) {
    const int bytes = nv * EK_VL * I8_STEP;
    vi_short s[NV * EK_VL] = {0};
    for (long p = 0; p < QUARTER; p += I8_STEP, w += bytes) {
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(x + q * QUARTER + p);
        prefetch(w, bytes);
        EK_UNROLL
        for (int j = 0; j < nv * EK_VL; j++) {
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
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const vi_short *of = s + j * EK_VL;
        to[j] = vi_sum4(vi_of_short(of[0]), vi_of_short(of[1]), vi_of_short(of[2]),
                        vi_of_short(of[3])) -
                vi_splat(2 * sum);
    }
}
#endif
#endif
