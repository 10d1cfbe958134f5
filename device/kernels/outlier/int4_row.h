/* group_sums of grouped_row.c for 4 bits. */
#ifndef EK_OUTLIER_INT4_ROW_H
#define EK_OUTLIER_INT4_ROW_H

#if EK_I8 == EK_I8_DOT4_SS
#define SUM_UNIT 0x1p-4f /* values in the upper half of a byte need no shift right */
EK_INLINE void load_step(const int nv, const uint8_t *w, const int8_t *x, pairs *to, pairs *to_x) {
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = ordered_load(w, j * 16);
    to_x[0] = ordered_load(x, 0), to_x[1] = ordered_load(x, HALF);
}

/* Half of the vectors of the next step are loaded beside each of two operations. Cores out of order
 * begin with those behind prefetches: otherwise A76 takes twice as long. */
EK_INLINE void group_sums(const int nv, const group_at at, vi *to) {
    const int bytes = nv * 16;
    const uint8_t *w = at.w, *ahead = at.ahead;
    pairs next[NV], next_x[2];
    vi high[NV];
    if (IS_LOADED)
        load_step(nv, w, at.x, next, next_x);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = high[j] = vi_splat(0);
    for (long p = 0; p < HALF; p += I8_STEP) {
        if (!IS_LOADED) {
            prefetch(ahead, 0, EK_VL * bytes);
            load_step(nv, w, at.x + p, next, next_x);
        }
        const pairs low_x = next_x[0], high_x = next_x[1];
        EK_UNROLL
        for (int l = 0; l < EK_VL; l++) {
            pairs all[NV], part[NV];
            const int last = l + 1 == EK_VL, loads = IS_LOADED || !last;
            const int ends =
                IS_LOADED && last && p + I8_STEP == HALF; /* loads the last ones twice */
            w += ends ? 0 : bytes;
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                all[j] = next[j];
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                part[j] = ordered_left4(all[j]);
                if (loads && j % 2 == 0)
                    next[j] = ordered_load(w, j * 16);
            }
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                to[j] = ordered_dot(to[j], low_x, l, part[j]);
                if (loads && j % 2 == 0 && j + 1 < nv)
                    next[j + 1] = ordered_load(w, j * 16 + 16);
            }
            if (IS_LOADED)
                prefetch(ahead, l * bytes, (l + 1) * bytes);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                part[j] = ordered_and(all[j], 0xf0);
            if (loads && last) {
                const int8_t *const x = at.x + p + (ends ? 0 : I8_STEP);
                next_x[0] = ordered_load(x, 0), next_x[1] = ordered_load(x, HALF);
            }
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                high[j] = ordered_dot(high[j], high_x, l, part[j]);
        }
        ahead += EK_VL * bytes;
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] += high[j];
}
#else
#define SUM_UNIT 1.0f
_Static_assert(GROUPS <= 128, "16 products of -127..127 and 0..15 fit 16 bits");
EK_INLINE void group_sums(const int nv, const group_at at, vi *to) {
    const int bytes = nv * EK_VL * I8_STEP;
    const uint8_t *w = at.w, *ahead = at.ahead;
    vi_short s[NV * EK_VL] = {0};
    for (long p = 0; p < HALF; p += I8_STEP, w += bytes, ahead += bytes) {
        const vi low_x = i8_vector(at.x + p), high_x = i8_vector(at.x + HALF + p);
        prefetch(ahead, 0, bytes);
        EK_UNROLL
        for (int j = 0; j < nv * EK_VL; j++) {
            const pairs both = pairs_at(w + j * 16);
            const vi low = (vi)(both & 15), high = (vi)(both >> 4);
            s[j] = vi_mlal8(s[j], low_x, low, 0);
            s[j] = vi_mlal8(s[j], low_x, low, 1);
            s[j] = vi_mlal8(s[j], high_x, high, 0);
            s[j] = vi_mlal8(s[j], high_x, high, 1);
        }
    }
    sum_columns(nv, s, 8 * at.sum, to);
}
#endif
#endif
