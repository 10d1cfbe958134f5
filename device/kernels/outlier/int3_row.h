/* group_sums of grouped_row.c for 3 bits: values plus 4, whose excess is taken off at the end. A
 * third bit is inserted above the other two of two values at a time. */
#ifndef EK_OUTLIER_INT3_ROW_H
#define EK_OUTLIER_INT3_ROW_H

#define SUM_UNIT(j) 1.0f
_Static_assert(GROUPS <= 256, "32 products of -127..127 and 0..7 fit 16 bits");

/* Bits 0, 1, 4 and 5 of `all`, the others of `third`. */
EK_INLINE pairs with_thirds(pairs all, pairs third) {
    const pairs lower = (uint8_t)0x33 - (pairs){0};
#ifdef __aarch64__ /* compilers take a selection apart, knowing which bits are used */
    __asm__("bif %0.16b, %1.16b, %2.16b" : "+w"(all) : "w"(third), "w"(lower));
    return all;
#else
    return (all & lower) | (third & ~lower);
#endif
}

/* Values of two quarters, in bits 0 to 2 and 4 to 6 of bytes: the first and the third one, or
 * (`odd`) the others. `third`: the third bits, `upper`: of the second vector that shares them. */
EK_INLINE pairs two_quarters(pairs all, pairs third, const int upper, const int odd) {
    if (upper)
        third = third << (odd ? 1 : 2);
    else if (odd)
        third = third >> 1;
    return with_thirds(odd ? all >> 2 : all, third);
}

#if EK_I8 == EK_I8_DOT4_SS
#define LOADED (NV + (NV + 1) / 2)

/* Step l of those from x on; s: sums times 1 and 16. `next` has its vectors, then those at w. */
EK_INLINE void add_step(const int nv, const int l, const pairs x[4], const uint8_t *w,
                        const uint8_t *ahead, vi s[2][NV], pairs next[LOADED]) {
    const int vectors = nv + (nv + 1) / 2;
    pairs all[LOADED];
    prefetch(ahead, l * vectors * 16, (l + 1) * vectors * 16);
    EK_UNROLL
    for (int i = 0; i < vectors; i++)
        all[i] = next[i];
    EK_UNROLL
    for (int odd = 1; odd >= 0; odd--) {
        pairs two[NV], part[NV];
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const pairs third = all[j / 2 * 3 + ek_min(2, nv - j / 2 * 2)];
            two[j] = two_quarters(all[j / 2 * 3 + j % 2], third, j % 2, odd);
        }
        EK_UNROLL
        for (int up = 0; up < 2; up++) {
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                part[j] = ordered_and(two[j], up ? 0x70 : 0x07);
            EK_UNROLL
            for (int i = 2 * (1 - odd) + up; i < vectors; i += 4)
                next[i] = ordered_load(w, i * 16);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                s[up][j] = ordered_dot(s[up][j], x[2 * up + odd], l, part[j]);
        }
    }
}

/* Steps of a group as in int2_row.h. They are no loop, which compilers may leave as one. */
EK_INLINE void add_steps(const int nv, const int steps, const int8_t *from, const uint8_t *w,
                         const uint8_t *ahead, int ends, vi s[2][NV], pairs next[LOADED]) {
    const int bytes = (nv + (nv + 1) / 2) * 16;
    const uint8_t *const last = w + (steps - ends) * bytes;
    pairs x[4];
    EK_UNROLL
    for (int q = 0; q < 4; q++)
        x[q] = ordered_load(from, q * QUARTER);
    add_step(nv, 0, x, steps > 1 ? w + bytes : last, ahead, s, next);
    if (steps > 1)
        add_step(nv, 1, x, steps > 2 ? w + 2 * bytes : last, ahead, s, next);
    if (steps > 2)
        add_step(nv, 2, x, steps > 3 ? w + 3 * bytes : last, ahead, s, next);
    if (steps > 3)
        add_step(nv, 3, x, last, ahead, s, next);
}

EK_INLINE void group_sums(const int nv, const group_at at, kept_nothing *kept, vi *to) {
    (void)kept;
    const int vectors = nv + (nv + 1) / 2, bytes = vectors * 16;
    const int rest = QUARTER % I8_STEP / I8_GROUP;
    const uint8_t *w = at.w, *ahead = at.ahead;
    vi s[2][NV];
    pairs next[LOADED];
    long p = 0;
    EK_UNROLL
    for (int i = 0; i < vectors; i++)
        next[i] = ordered_load(w, i * 16);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        s[0][j] = vi_splat(*at.sum), s[1][j] = vi_splat(0);
    for (; p + I8_STEP <= QUARTER; p += I8_STEP, w += EK_VL * bytes, ahead += EK_VL * bytes)
        add_steps(nv, EK_VL, at.x + p, w, ahead, p + I8_STEP == QUARTER, s, next);
    if (rest)
        add_steps(nv, rest, at.x + p, w, ahead, 1, s, next);
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = s[0][j] + (s[1][j] >> 4);
}
#elif EK_I8 == EK_I8_MULL16
/* A vector of columns after the other: with the sums of all of them, compilers spill. */
#if defined __aarch64__ || defined __arm__
#define COMPUTE_NOW(sum) __asm__ volatile("" : "+w"(sum) : : "memory")
#else
#define COMPUTE_NOW(sum) (void)(sum)
#endif
EK_INLINE void group_sums(const int nv, const group_at at, kept_nothing *kept, vi *to) {
    (void)kept;
    const uint8_t *w = at.w, *ahead = at.ahead;
    const int bytes = (int)stream_step(nv * EK_VL, 3);
    for (long p = 0; p < QUARTER; p += I8_STEP, w += bytes, ahead += bytes) {
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(at.x + q * QUARTER + p);
        EK_UNROLL
        for (int v = 0; v < nv; v++) {
            vi_short s[EK_VL] = {0};
            vi sum;
            prefetch(ahead, v * bytes / nv, (v + 1) * bytes / nv);
            EK_UNROLL
            for (int i = 0; i < EK_VL; i++) {
                const int j = v * EK_VL + i;
                const pairs all = pairs_at(w + (j / 2 * 3 + j % 2) * 16);
                const pairs third = pairs_at(w + (j / 2 * 3 + 2) * 16);
                EK_UNROLL
                for (int odd = 1; odd >= 0; odd--) {
                    const pairs two = two_quarters(all, third, j % 2, odd);
                    const vi first = (vi)(two & 7), second = (vi)(two >> 4 & 7);
                    s[i] = vi_mlal8(s[i], of[odd], first, 0);
                    s[i] = vi_mlal8(s[i], of[odd], first, 1);
                    s[i] = vi_mlal8(s[i], of[2 + odd], second, 0);
                    s[i] = vi_mlal8(s[i], of[2 + odd], second, 1);
                }
            }
            sum_columns(1, s, p ? 0 : *at.sum, &sum);
            to[v] = p ? to[v] + sum : sum;
            COMPUTE_NOW(to[v]);
        }
    }
}
#endif
#endif
