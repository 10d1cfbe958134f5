/* Steps of 8-bit products that load operands one step ahead (I8_LOADS_AHEAD). Included by
 * i8_tile.h, whose types and macros it uses. */
#ifndef EK_GEMM_I8_AHEAD_H
#define EK_GEMM_I8_AHEAD_H

/* Operands of one step along k, loaded in advance. */
typedef struct {
    vi_half x[MR][2], b[2];
} i8_loaded;

/* One step: the bytes of the next column, or after the last column those of the next step (rows at
 * `row`, panel at `next`), are loaded between products. Each column depends on the previous one;
 * otherwise the compiler schedules all products first and spills sums. */
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

/* `count` segments of `length` values of k, with rows at [segment][MR] in the table. This core can
 * load 8 bytes in parallel with a product, but not 16, and stalls if a result is used too soon. So
 * everything is loaded one step ahead, across segments; the last step reloads its own operands. */
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
