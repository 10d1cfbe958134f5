/* group_sums of grouped_row.c for 2 bits: values plus 2, whose excess is taken off by what sums
 * begin with. */
#ifndef EK_OUTLIER_INT2_ROW_H
#define EK_OUTLIER_INT2_ROW_H

#if EK_I8 == EK_I8_DOT4_SS
/* Bytes have values of four vectors of columns. The sum of products of whole bytes, and those of
 * their lower 6, 4 and 2 bits, differ by a multiple of a vector's sums each: so 64 values take four
 * products and three masks. */
#define SUM_UNIT(j) (1.0f / (1 << 2 * (j)))
_Static_assert(NV == 4 && GROUPS % I8_STEP == 0, "x of whole vectors");

/* A core in order would wait for what a group begins with and for its scales, so they are loaded
 * beside operations of the group before, or of its own. */
typedef struct {
    pairs w[2], x; /* of two steps; of four */
    pairs low[3];  /* the lower 2, 4 and 6 bits of the first one */
    vi begins[4];  /* of sums */
    vf scales[4];
} kept_vectors;
#define KEEPS
#define KEEPS_SCALES 1

EK_INLINE void mask_step(kept_vectors *kept) {
    EK_UNROLL
    for (int j = 2; j >= 0; j--)
        kept->low[j] = ordered_and(kept->w[0], (uint8_t)((4 << 2 * j) - 1));
}

/* The sums that a group begins with, once `to` is made of those of the one before. */
EK_INLINE void begin_sums(const int32_t *sums, const vi to[4], kept_vectors *kept) {
    EK_UNROLL
    for (int j = 0; j < 4; j++)
        kept->begins[j] = ordered_splat(sums + ek_min(j, 2), to[ek_max(j, 1)]);
}

EK_INLINE void load_first(const int nv, const group_at at, kept_vectors *kept) {
    const vi none[4] = {0};
    (void)nv;
    kept->w[0] = ordered_load(at.w, 0), kept->w[1] = ordered_load(at.w, 16);
    kept->x = ordered_load(at.x, 0);
    mask_step(kept);
    begin_sums(at.sum, none, kept);
}

/* Four steps from w on; s: sums of whole bytes behind those of fewer bits. `kept` has the first
 * two steps' vectors and the x of all, then those at next_w and next_x. */
EK_INLINE void four_steps(const uint8_t *w, const uint8_t *next_w, const int8_t *next_x,
                          const uint8_t *scale, const uint8_t *ahead, vi s[4], kept_vectors *kept) {
    pairs next_of_x;
    scale_bits stored;
    EK_UNROLL
    for (int l = 0; l < 4; l++) {
        const pairs next = ordered_load(l < 2 ? w : next_w, (l + 2) % 4 * 16);
        s[3] = ordered_dot(s[3], kept->x, l, kept->w[0]);
        s[2] = ordered_dot(s[2], kept->x, l, kept->low[2]);
        if (l == 1)
            prefetch(ahead, 0, 64);
        if (l == 2)
            next_of_x = ordered_load(next_x, 0);
        s[1] = ordered_dot(s[1], kept->x, l, kept->low[1]);
        if (scale)
            memcpy(&stored, scale + l * (int)sizeof stored, sizeof stored);
        s[0] = ordered_dot(s[0], kept->x, l, kept->low[0]);
        kept->w[0] = kept->w[1], kept->w[1] = next;
        mask_step(kept);
        if (scale) { /* there by now */
            stored = ordered_here(stored);
            kept->scales[l] = stream_scales(SCALES, (const uint8_t *)&stored);
        }
    }
    kept->x = next_of_x;
}

EK_INLINE void group_sums(const int nv, const group_at at, kept_vectors *kept, vi *to) {
    vi s[4];
    (void)nv;
    EK_UNROLL
    for (int j = 0; j < 4; j++)
        s[j] = kept->begins[j];
    EK_UNROLL
    for (int p = 0; p < GROUPS; p += I8_STEP) {
        const int ends = p + I8_STEP == GROUPS;
        const uint8_t *const w = at.w + 4 * p;
        four_steps(w, ends ? at.next_w : w + 64, ends ? at.next_x : at.x + p + I8_STEP,
                   ends ? at.w + VALUES(4) : NULL, at.ahead + 4 * p, s, kept);
    }
    ordered_behind(s);
    to[0] = s[0];
    EK_UNROLL
    for (int j = 3; j > 0; j--)
        to[j] = s[j] - s[j - 1];
    begin_sums(at.next_sum, to, kept);
}
#elif EK_I8 == EK_I8_MULL16
#define SUM_UNIT(j) 1.0f
_Static_assert(GROUPS <= 512, "64 products of -127..127 and 0..3 fit 16 bits");
EK_INLINE void group_sums(const int nv, const group_at at, kept_nothing *kept, vi *to) {
    const int bytes = nv * EK_VL * I8_STEP;
    (void)kept;
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
    sum_columns(nv, s, *at.sum, to);
}
#endif
#endif
