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

typedef struct {
    pairs w[NV], x[4]; /* of a step; x of four steps */
} kept_vectors;
#define KEEPS

EK_INLINE void load_first(const int nv, const uint8_t *w, const int8_t *x, kept_vectors *kept) {
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        kept->w[j] = ordered_load(w, j * 16);
    EK_UNROLL
    for (int q = 0; q < 4; q++)
        kept->x[q] = ordered_load(x, q * QUARTER);
}

/* The load beside operation i of the 8 * nv of a step, as one takes as long as two operations: the
 * next step's vectors from the operation before the last quarter on, and before, if the group
 * `begins`, what its sums begin with. */
EK_INLINE void load_beside(const int nv, const int i, const int begins, const int32_t *sum,
                           const uint8_t *next, vi s[3][NV], pairs loaded[NV]) {
    const int after = i - 6 * nv + 1; /* the last quarter's first operation: 1 */
    if (after >= 0 && after % 2 == 0 && after / 2 < nv)
        loaded[after / 2] = ordered_load(next, after / 2 * 16);
    if (begins && i < nv)
        s[0][i] = ordered_splat(sum);
    if (begins && i >= nv && i < 5 * nv && (i - nv) % 2 == 0)
        s[1 + (i - nv) / (2 * nv)][(i - nv) / 2 % nv] = ordered_zero();
}

/* Steps of a group from w on; s: sums times 1, 4 and 16, which some begin. `kept` has the vectors
 * of the first step and their x, then those at next_w and next_x. */
EK_INLINE void add_steps(const int nv, const int steps, const int32_t *sum, const int begins,
                         const uint8_t *w, const uint8_t *next_w, const int8_t *next_x,
                         const uint8_t *ahead, vi s[3][NV], kept_vectors *kept) {
    const int bytes = nv * 16;
    EK_UNROLL
    for (int l = 0; l < steps; l++) {
        const uint8_t *next = l + 1 < steps ? w + (l + 1) * bytes : next_w;
        pairs part[NV], loaded[NV];
        prefetch(ahead, l * bytes, (l + 1) * bytes);
        EK_UNROLL
        for (int i = 0; i < 8 * nv; i++) {
            const int q = i / (2 * nv), j = i % nv;
            if (i % (2 * nv) < nv)
                part[j] = quarter_of(kept->w[j], q);
            else
                s[q % 3][j] = ordered_dot(s[q % 3][j], kept->x[q], l, part[j]);
            load_beside(nv, i, begins && l == 0, sum, next, s, loaded);
            if (l + 1 == steps && i % (2 * nv) == 2 * nv - 1 && q < 3)
                kept->x[q] = ordered_load(next_x, q * QUARTER);
        }
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            kept->w[j] = loaded[j];
    }
    kept->x[3] = ordered_load(next_x, 3 * QUARTER);
}

EK_INLINE void group_sums(const int nv, const group_at at, kept_vectors *kept, vi *to) {
    const int step = nv * 16, first = ek_min(EK_VL, QUARTER / I8_GROUP);
    const int rest = QUARTER % I8_STEP / I8_GROUP;
    const uint8_t *w = at.w, *ahead = at.ahead;
    const int8_t *x = at.x;
    const uint8_t *const end = w + QUARTER / I8_GROUP * step;
    vi s[3][NV];
#define NEXT(count)                                                                                \
    (w + (count) * step == end ? at.next_w : w + (count) * step),                                  \
        (w + (count) * step == end ? at.next_x : x + I8_STEP)
    add_steps(nv, first, at.sum, 1, w, NEXT(first), ahead, s, kept);
    w += first * step, ahead += first * step, x += I8_STEP;
    for (long p = I8_STEP; p + I8_STEP <= QUARTER; p += I8_STEP) {
        add_steps(nv, EK_VL, at.sum, 0, w, NEXT(EK_VL), ahead, s, kept);
        w += EK_VL * step, ahead += EK_VL * step, x += I8_STEP;
    }
    if (rest && QUARTER > I8_STEP)
        add_steps(nv, rest, at.sum, 0, w, at.next_w, at.next_x, ahead, s, kept);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = s[0][j] + (s[1][j] >> 2) + (s[2][j] >> 4);
}
#elif EK_I8 == EK_I8_MULL16
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
