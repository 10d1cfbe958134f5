/* group_sums of grouped_row.c for 2 bits that are looked up (row_tables.c): half a byte is the
 * place of a sum of two products, rounded to 8 bits. Sums of a group fit 16 bits. */
#ifndef EK_OUTLIER_TABLES_ROW_H
#define EK_OUTLIER_TABLES_ROW_H

#define SUM_UNIT(j) 1.0f
_Static_assert(GROUPS <= 256, "128 values of -170..170 fit 16 bits");
_Static_assert(NV % UNIT == 0, "a look-up has 16 columns");

EK_INLINE int8x16_t looked_up(vi table, pairs at) {
    return vqtbl1q_s8((int8x16_t)table, (uint8x16_t)at);
}

EK_INLINE void group_sums(const int nv, const group_at at, kept_nothing *kept, vi *to) {
    (void)kept;
    const int8_t *x = at.x;
    const uint8_t *w = at.w, *ahead = at.ahead;
    const int vectors = nv / UNIT;
    int16x8_t s[NV / UNIT][2];
    EK_UNROLL
    for (int j = 0; j < vectors; j++)
        s[j][0] = s[j][1] = vdupq_n_s16((int16_t)*at.sum);
    for (long p = 0; p < QUARTER;
         p++, w += vectors * 16, ahead += vectors * 16, x += 2 * EK_ROW_TABLE) {
        const vi table[2] = {i8_vector(x), i8_vector(x + EK_ROW_TABLE)};
        if (p * vectors % 4 < vectors)
            prefetch(ahead, 0, 64);
        EK_UNROLL
        for (int j = 0; j < vectors; j++) {
            const pairs all = pairs_at(w + j * 16);
            const int8x16_t low = looked_up(table[0], all & 15);
            const int8x16_t high = looked_up(table[1], all >> 4);
            s[j][0] = vaddw_s8(s[j][0], vget_low_s8(low));
            s[j][1] = vaddw_high_s8(s[j][1], low);
            s[j][0] = vaddw_s8(s[j][0], vget_low_s8(high));
            s[j][1] = vaddw_high_s8(s[j][1], high);
        }
    }
    EK_UNROLL
    for (int j = 0; j < nv; j++) {
        const int16x8_t of = s[j / UNIT][j / 2 % 2];
        to[j] = (vi)(j % 2 ? vmovl_high_s16(of) : vmovl_s16(vget_low_s16(of)));
    }
}
#endif
