/* Four rows x four columns of 8-bit products, for 64-bit ARM cores out of order without dot
 * products, as Cortex-A57 and A72; part of i8_tile.h.
 *
 * Such a core dispatches in order: per cycle, one instruction to each of its vector units, of which
 * one multiplies and the other adds pairs. Their queues are short. So additions are put between
 * multiplications, and operands are loaded eight multiplications ahead. It is in assembly because
 * compilers put loads just before products, and additions behind all of them. */
#ifndef EK_GEMM_I8_OUT_OF_ORDER_H
#define EK_GEMM_I8_OUT_OF_ORDER_H

#define OB_LOW(i, x, b) "smull %[p" #i "].8h, %[" #x #i "].8b, %[" #b "].8b\n"
#define OB_HIGH(i, x, b) "smlal2 %[p" #i "].8h, %[" #x #i "].16b, %[" #b "].16b\n"
#define OB_ADD(i, j) "sadalp %[s" #i #j "].4s, %[p" #i "].8h\n"
#define OB_LOAD(b, at) "ldr %q[" #b "], [%[w], #" #at "]\n"
#define OB_ROW(x, i) "ldr %q[" #x #i "], [%[from" #i "], %[next]]\n"
#define OB_FLIP(x, i) "eor %[" #x #i "].16b, %[" #x #i "].16b, %[flips].16b\n"
#define OB_NO_FLIP(x, i) ""

/* Column j: rows x by b. The last addition of the column before it comes first. */
#define OB_COLUMN(j, x, b, before, A, B, C, D)                                                     \
    OB_LOW(0, x, b) before A OB_LOW(1, x, b)                                                       \
    B OB_LOW(2, x, b)                                                                              \
    C OB_LOW(3, x, b)                                                                              \
    D OB_HIGH(0, x, b) OB_HIGH(1, x, b) OB_ADD(0, j) OB_HIGH(2, x, b) OB_ADD(1, j)                 \
        OB_HIGH(3, x, b) OB_ADD(2, j)

/* Prefetches a line of a later call's weights. The load, of a line that was prefetched before,
 * shows the board simulator the address. */
#define OB_AHEAD                                                                                   \
    "ldr wzr, [%[ahead]]\n"                                                                        \
    "prfm pldl2keep, [%[ahead], %[touched]]\n"                                                     \
    "add %[ahead], %[ahead], #64\n"

/* A step along k, which loads the rows y of the next one, or its own once more. */
#define OB_STEP(x, y, FLIP, AHEAD)                                                                 \
    OB_COLUMN(0, x, b, OB_ADD(3, 3), OB_LOAD(c, 16), "subs %[n], %[n], #1\n",                      \
              "csel %[t], %[bytes], xzr, ne\n", "add %[next], %[next], %[t]\n")                    \
    OB_COLUMN(1, x, c, OB_ADD(3, 0), OB_LOAD(b, 32), OB_ROW(y, 0), OB_ROW(y, 1), AHEAD)            \
    OB_COLUMN(2, x, b, OB_ADD(3, 1), OB_LOAD(c, 48), OB_ROW(y, 2), OB_ROW(y, 3),                   \
              "add %[w], %[w], %[t], lsl %[shift]\n")                                              \
    OB_COLUMN(3, x, c, OB_ADD(3, 2), OB_LOAD(b, 0), FLIP(y, 0) FLIP(y, 1), FLIP(y, 2) FLIP(y, 3),  \
              "")

#define OB_SUM(i, j) [s##i##j] "+w"(sums->of[i][j])
#define OB_SUMS(i) OB_SUM(i, 0), OB_SUM(i, 1), OB_SUM(i, 2), OB_SUM(i, 3)
#define OB_STEPS(SHIFT, FLIP, AHEAD)                                                               \
    __asm__("1:\n" OB_STEP(x, y, FLIP, AHEAD) "b.eq 2f\n" OB_STEP(y, x, FLIP,                      \
                                                                  AHEAD) "b.ne 1b\n"               \
                                                                         "2:\n" OB_ADD(3, 3)       \
            : OB_SUMS(0), OB_SUMS(1), OB_SUMS(2),                                                  \
              OB_SUMS(3), [x0] "+w"(x[0]), [x1] "+w"(x[1]), [x2] "+w"(x[2]), [x3] "+w"(x[3]),      \
              [y0] "=&w"(y[0]), [y1] "=&w"(y[1]), [y2] "=&w"(y[2]), [y3] "=&w"(y[3]), [b] "+w"(b), \
              [c] "=&w"(c), [p0] "=&w"(p[0]), [p1] "=&w"(p[1]), [p2] "=&w"(p[2]), [p3] "+w"(p[3]), \
              [w] "+r"(w), [n] "+r"(n), [next] "+r"(next), [t] "=&r"(t), [ahead] "+r"(ahead)       \
            : [from0] "r"(row[0]), [from1] "r"(row[1]), [from2] "r"(row[2]), [from3] "r"(row[3]),  \
              [bytes] "r"((long)I8_STEP << SHIFT), [flips] "w"(flips), [shift] "n"(2 - SHIFT),     \
              [touched] "n"(EK_READ_AHEAD_TOUCHED)                                                 \
            : "cc", "memory")

/* sums += rows by a panel, over `length` values of k; rows or panel contain no -128. `packed`: the
 * rows are those of a panel of A. If `ahead`, prefetches a line from there on in each step. Returns
 * the end of the panel. */
EK_INLINE const i8_value *i8_rows_out_of_order(const int packed, i8_sums *sums, const i8_rows a,
                                               long length, const char *ahead,
                                               const i8_value *panel) {
    const i8_row *const *const row = a.row;
    const vi flips = vi_splat(a.flip);
    vi x[4], y[4], p[4] = {0}, b = i8_vector(panel), c;
    const long steps = length / I8_STEP - (a.half ? 1 : 0);
    const i8_value *w = panel;
    long n = steps, next = 0, t;
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        x[i] = i8_vector(row[i]) ^ flips;
    if (ahead)
        ahead -= EK_READ_AHEAD_TOUCHED;
    if (packed)
        OB_STEPS(2, OB_NO_FLIP, "");
    else if (a.flip && ahead)
        OB_STEPS(0, OB_FLIP, OB_AHEAD);
    else if (a.flip)
        OB_STEPS(0, OB_FLIP, "");
    else if (ahead)
        OB_STEPS(0, OB_NO_FLIP, OB_AHEAD);
    else
        OB_STEPS(0, OB_NO_FLIP, "");
    w = panel + steps * 4 * I8_STEP;
    if (!a.half)
        return w;
    i8_half_step(4, 1, sums, row, steps * I8_STEP, w, flips);
    return w + 4 * I8_STEP;
}
#endif
