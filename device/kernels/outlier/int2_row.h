/* group_sums of grouped_row.c for 2 bits: values plus 2, whose excess is taken off at the end.
 * Values that stay in upper bits of their bytes count as multiples where such sums fit. */
#ifndef EK_OUTLIER_INT2_ROW_H
#define EK_OUTLIER_INT2_ROW_H

#define SUM_UNIT 1.0f
_Static_assert(GROUPS <= 512, "64 products of -127..127 and 0..3 fit 16 bits");

#if EK_I8 == EK_I8_DOT4_SS
/* The values of a quarter in their bytes. */
EK_INLINE pairs quarter_of(pairs all, const int q) {
    return q == 3 ? ordered_right6(all) : ordered_and(all, (uint8_t)(3 << 2 * q));
}

/* Steps of a group from x and w on; s: sums times 1, 4 and 16. `next` has the first vectors, then
 * those behind the steps, or if it `ends`, the last ones again. Each is loaded beside the
 * operations of a quarter. */
EK_INLINE void add_steps(const int nv, const int steps, const int8_t *from, const uint8_t *w,
                         const uint8_t *ahead, int ends, vi s[3][NV], pairs next[NV]) {
    const int bytes = nv * 16;
    pairs x[4];
    EK_UNROLL
    for (int q = 0; q < 4; q++)
        x[q] = ordered_load(from, q * QUARTER);
    EK_UNROLL
    for (int l = 0; l < steps; l++) {
        pairs all[NV], part[NV];
        w += l + 1 == steps && ends ? 0 : bytes;
        prefetch(ahead, l * bytes, (l + 1) * bytes);
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            all[j] = next[j];
        EK_UNROLL
        for (int q = 0; q < 4; q++) {
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                part[j] = quarter_of(all[j], q);
            if (q < nv)
                next[q] = ordered_load(w, q * 16);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                s[q % 3][j] = ordered_dot(s[q % 3][j], x[q], l, part[j]);
        }
    }
}

EK_INLINE void group_sums(const int nv, const group_at at, vi *to) {
    const int bytes = nv * 16, rest = QUARTER % I8_STEP / I8_GROUP;
    const uint8_t *w = at.w, *ahead = at.ahead;
    vi s[3][NV];
    pairs next[NV];
    long p = 0;
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        s[0][j] = vi_splat(-2 * at.sum), s[1][j] = s[2][j] = vi_splat(0);
        next[j] = ordered_load(w, j * 16);
    }
    for (; p + I8_STEP <= QUARTER; p += I8_STEP, w += EK_VL * bytes, ahead += EK_VL * bytes)
        add_steps(nv, EK_VL, at.x + p, w, ahead, p + I8_STEP == QUARTER, s, next);
    if (rest)
        add_steps(nv, rest, at.x + p, w, ahead, 1, s, next);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = s[0][j] + (s[1][j] >> 2) + (s[2][j] >> 4);
}
#elif EK_I8 == EK_I8_MULL16
EK_INLINE void group_sums(const int nv, const group_at at, vi *to) {
    const int bytes = nv * EK_VL * I8_STEP;
    const uint8_t *w = at.w, *ahead = at.ahead;
    vi_short s[NV * EK_VL] = {0};
    for (long p = 0; p < QUARTER; p += I8_STEP, w += bytes, ahead += bytes) {
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(at.x + q * QUARTER + p);
        EK_UNROLL
        for (int j = 0; j < nv * EK_VL; j++) {
            prefetch(ahead, j * 16, (j + 1) * 16);
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
    sum_columns(nv, s, 2 * at.sum, to);
}
#endif
#endif
