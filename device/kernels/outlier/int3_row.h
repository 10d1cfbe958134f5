/* group_sums of grouped_row.c for 3 bits: values plus 4, whose excess is taken off at the end. A
 * third bit is inserted above the other two of two values at a time. */
#ifndef EK_OUTLIER_INT3_ROW_H
#define EK_OUTLIER_INT3_ROW_H

#define SUM_UNIT 1.0f
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
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w,
                          const uint8_t *last, vi *to) {
    (void)last;
    const int bytes = (int)stream_step(nv * EK_VL, 3);
    vi s[2][NV]; /* times 1 and 16 */
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        s[0][j] = vi_splat(-4 * sum), s[1][j] = vi_splat(0);
    for (long p = 0; p < QUARTER; p += I8_STEP) {
        const int steps = (int)ek_min(EK_VL, (QUARTER - p) / I8_GROUP);
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(x + q * QUARTER + p);
        const uint8_t *const ahead = w;
        EK_UNROLL
        for (int l = 0; l < steps; l++, w += bytes) {
            pairs all[NV], third[NV];
            prefetch(ahead, l * bytes, (l + 1) * bytes);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                all[j] = pairs_at(w + (j / 2 * 3 + j % 2) * 16);
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                third[j] = pairs_at(w + (j / 2 * 3 + ek_min(2, nv - j / 2 * 2)) * 16);
            TOGETHER(nv, all);
            EK_IN_ORDER_HERE; /* otherwise all steps are read first, and spilled */
            EK_UNROLL
            for (int odd = 1; odd >= 0; odd--) {
                pairs two[NV];
                vi part[NV];
                EK_UNROLL
                for (int j = 0; j < nv; j++)
                    two[j] = two_quarters(all[j], third[j], j % 2, odd);
                TOGETHER(nv, two);
                EK_UNROLL
                for (int up = 0; up < 2; up++) {
                    EK_UNROLL
                    for (int j = 0; j < nv; j++)
                        part[j] = (vi)(two[j] & (uint8_t)(up ? 0x70 : 0x07));
                    TOGETHER(nv, part);
                    EK_UNROLL
                    for (int j = 0; j < nv; j++)
                        s[up][j] = vi_dot4(s[up][j], vi_splat(of[2 * up + odd][l]), part[j]);
                    TOGETHER(nv, s[up]);
                }
            }
        }
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++)
        to[j] = s[0][j] + (s[1][j] >> 4);
}
#elif EK_I8 == EK_I8_MULL16
EK_INLINE void group_sums(const int nv, const int8_t *x, int32_t sum, const uint8_t *w,
                          const uint8_t *last, vi *to) {
    (void)last;
    const int columns = nv * EK_VL, bytes = (int)stream_step(columns, 3);
    vi_short s[NV * EK_VL] = {0};
    for (long p = 0; p < QUARTER; p += I8_STEP, w += bytes) {
        vi of[4];
        EK_UNROLL
        for (int q = 0; q < 4; q++)
            of[q] = i8_vector(x + q * QUARTER + p);
        EK_UNROLL
        for (int j = 0; j < columns; j++) {
            prefetch(w, j * bytes / columns, (j + 1) * bytes / columns);
            const pairs all = pairs_at(w + (j / 2 * 3 + j % 2) * 16);
            const pairs third = pairs_at(w + (j / 2 * 3 + 2) * 16);
            EK_UNROLL
            for (int odd = 1; odd >= 0; odd--) {
                const pairs two = two_quarters(all, third, j % 2, odd);
                const vi first = (vi)(two & 7), second = (vi)(two >> 4 & 7);
                s[j] = vi_mlal8(s[j], of[odd], first, 0);
                s[j] = vi_mlal8(s[j], of[odd], first, 1);
                s[j] = vi_mlal8(s[j], of[2 + odd], second, 0);
                s[j] = vi_mlal8(s[j], of[2 + odd], second, 1);
            }
        }
    }
    sum_columns(nv, s, 4 * sum, to);
}
#endif
#endif
