/* group_sums of grouped_row.c for 4 bits. */
#ifndef EK_OUTLIER_INT4_ROW_H
#define EK_OUTLIER_INT4_ROW_H

#if EK_I8 == EK_I8_DOT4_SS
#define SUM_UNIT(j) 0x1p-4f /* values in the upper half of a byte need no shift right */
typedef struct {
    pairs w[NV], x[2]; /* of a step; x of EK_VL steps */
    vi zeros[NV];      /* that sums begin with */
} kept_vectors;
#define KEEPS

EK_INLINE void load_step(const int nv, const uint8_t *w, const int8_t *x, kept_vectors *kept) {
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        kept->w[j] = ordered_load(w, j * 16);
    kept->x[0] = ordered_load(x, 0), kept->x[1] = ordered_load(x, HALF);
}

EK_INLINE void load_first(const int nv, const group_at at, kept_vectors *kept) {
    if (!IS_LOADED)
        return;
    load_step(nv, at.w, at.x, kept);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        kept->zeros[j] = ordered_zero();
}

/* Half of the vectors of the next step are loaded beside each of two operations. Cores out of order
 * begin with those behind prefetches: otherwise A76 takes twice as long. */
EK_INLINE void group_sums(const int nv, const group_at at, kept_vectors *kept, vi *to) {
    const int bytes = nv * 16;
    const uint8_t *w = at.w, *ahead = at.ahead;
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = IS_LOADED ? kept->zeros[j] : vi_splat(0);
    for (long p = 0; p < HALF; p += I8_STEP) {
        const int ends = IS_LOADED && p + I8_STEP == HALF;
        const int8_t *const next_x = ends ? at.next_x : at.x + p + I8_STEP;
        if (!IS_LOADED) {
            prefetch(ahead, 0, EK_VL * bytes);
            load_step(nv, w, at.x + p, kept);
        }
        EK_UNROLL
        for (int l = 0; l < EK_VL; l++) {
            pairs all[NV], part[NV];
            const int last = l + 1 == EK_VL, loads = IS_LOADED || !last;
            w = last && ends ? at.next_w : w + bytes;
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                all[j] = kept->w[j];
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                part[j] = ordered_left4(all[j]);
                if (loads && j % 2 == 0)
                    kept->w[j] = ordered_load(w, j * 16);
            }
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                to[j] = ordered_dot(to[j], kept->x[0], l, part[j]);
                if (loads && j % 2 == 0 && j + 1 < nv)
                    kept->w[j + 1] = ordered_load(w, j * 16 + 16);
            }
            if (IS_LOADED)
                prefetch(ahead, l * bytes, (l + 1) * bytes);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                part[j] = ordered_and(all[j], 0xf0);
            if (loads && last)
                kept->x[0] = ordered_load(next_x, 0);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                to[j] = ordered_dot(to[j], kept->x[1], l, part[j]);
            if (loads && last)
                kept->x[1] = ordered_load(next_x, HALF);
        }
        ahead += EK_VL * bytes;
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        kept->zeros[j] = ordered_zero();
}
#else
#define SUM_UNIT(j) 1.0f
_Static_assert(GROUPS <= 128, "16 products of -127..127 and 0..15 fit 16 bits");
EK_INLINE void group_sums(const int nv, const group_at at, kept_nothing *kept, vi *to) {
    (void)kept;
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
    sum_columns(nv, s, *at.sum, to);
}
#endif
#endif
