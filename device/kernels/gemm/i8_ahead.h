/* Steps of 8-bit products whose operands are loaded a step ahead (I8_LOADS_AHEAD). Included by
 * i8_tile.h, whose types and macros it uses. */
#ifndef EK_GEMM_I8_AHEAD_H
#define EK_GEMM_I8_AHEAD_H

/* What one step along k multiplies, loaded before. */
typedef struct {
    vi_half x[MR][2], b[2];
} i8_loaded;

/* One step: the bytes of the next column, and after the last one those of the next step, whose rows
 * are at `row` and whose panel is at `next`, are loaded beside products. Each column waits for the
 * one before, or products of all come first, and sums leave the registers. */
EK_INLINE void i8_step_ahead(const int mr, const int nv, i8_sums *sums, i8_loaded *now,
                             const i8_row *const row[MR], const i8_value *w, const i8_value *next,
                             vi_half flip, const int narrow) {
    const int columns = nv * EK_VL;
    EK_UNROLL
    for (int j = 0; j < columns; j++) {
        const i8_value *at = j + 1 < columns ? w + (j + 1) * 16 : next;
        vi_half later[2] = {vi_half_of(at), vi_half_of(at + 8)};
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            sums->of[i][j] = vi_mull8(sums->of[i][j], now->x[i], now->b, narrow);
            EK_AFTER(later[0], sums->of[i][j]);
            EK_AFTER(later[1], sums->of[i][j]);
            if (j + 1 == columns) {
                now->x[i][1] = vi_half_of(row[i] + 8) ^ flip;
                now->x[i][0] = vi_half_of(row[i]) ^ flip;
            }
        }
        now->b[0] = later[0], now->b[1] = later[1];
    }
}

/* `count` segments of `length` values of k, whose rows the table has at [segment][MR]. Such a core
 * loads eight bytes beside a product, sixteen only alone, and waits where a result is used too
 * soon, so all is loaded a step ahead, from segment to segment; after the last step it is that
 * again. */
EK_INLINE const i8_value *i8_segments_ahead(const int mr, const int nv, i8_sums *sums,
                                            const i8_row *const *table, long count, long length,
                                            const i8_rows a, const i8_value *w) {
    const vi_half flip = vi_low_half(vi_splat(a.flip));
    const long values = nv * EK_VL * I8_STEP, steps = length / I8_STEP;
    const i8_value *const last = w + (count * steps - 1) * values;
    const i8_row *row[MR];
    i8_loaded now = {.b = {vi_half_of(w), vi_half_of(w + 8)}};
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        row[i] = table[i];
        now.x[i][0] = vi_half_of(row[i]) ^ flip;
        now.x[i][1] = vi_half_of(row[i] + 8) ^ flip;
    }
    long left = steps;
    for (;;) {
        if (--left) {
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                row[i] += a.step;
        } else if (--count) {
            left = steps, table += MR;
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                row[i] = table[i];
        }
        const i8_value *next = w == last ? w : w + values;
        i8_step_ahead(mr, nv, sums, &now, row, w, next, flip, a.narrow);
        if (w == last)
            return w + values;
        w = next;
    }
}
#endif
