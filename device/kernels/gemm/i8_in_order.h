/* Four rows x four columns of 8-bit products, for 64-bit ARM cores in order without dot products;
 * part of i8_tile.h.
 *
 * A Cortex-A53 issues loads into integer registers beside operations on whole vectors, but neither
 * loads into vectors nor insertions, which go beside each other
 * (github.com/daniestevez/qsdr, qsdr-benchmarks, which measured it). So operands are loaded into
 * integer registers a step ahead, and inserted in pairs. It is in assembly because compilers move
 * loads and insertions together. */
#ifndef EK_GEMM_I8_IN_ORDER_H
#define EK_GEMM_I8_IN_ORDER_H

/* The products of four rows by column b: of the lower eight values, and of the upper eight. A, B, C
 * and D are issued beside them. */
#define IO_LOW(b, A, B, C, D)                                                                      \
    "smull %[p0].8h, %[x0].8b, %[" #b "].8b\n" A "smull %[p1].8h, %[x1].8b, %[" #b "].8b\n" B      \
    "smull %[p2].8h, %[x2].8b, %[" #b "].8b\n" C "smull %[p3].8h, %[x3].8b, %[" #b "].8b\n" D
#define IO_HIGH(op, b, A, B, C, D)                                                                 \
    op " %[p0].8h, %[x0].16b, %[" #b "].16b\n" A op " %[p1].8h, %[x1].16b, %[" #b "].16b\n" B op   \
       " %[p2].8h, %[x2].16b, %[" #b "].16b\n" C op " %[p3].8h, %[x3].16b, %[" #b "].16b\n" D
#define IO_ADD(j, A, B, C, D)                                                                      \
    "sadalp %[s0" #j "].4s, %[p0].8h\n" A "sadalp %[s1" #j "].4s, %[p1].8h\n" B "sadalp %[s2" #j   \
    "].4s, %[p2].8h\n" C "sadalp %[s3" #j "].4s, %[p3].8h\n" D
#define IO_LOAD(t, from, at) "ldr %[" #t "], [%[" #from "], #" #at "]\n"
#define IO_ROW(i, at) IO_LOAD(r##i, from##i, at)
#define IO_NEXT(i) "add %[from" #i "], %[from" #i "], %[step]\n"
#define IO_FLIP(t) "eor %[" #t "], %[" #t "], %[flip]\n"
#define IO_FIRST(v, t) "fmov %d[" #v "], %[" #t "]\n"
#define IO_JOIN(v, t) "mov %[" #v "].d[1], %[" #t "]\n"
#define IO_ONWARD(p) "add %[" #p "], %[" #p "], #64\n"
/* Into two vectors at once. */
#define IO_FIRST2(v, w, t, u) IO_FIRST(v, t) IO_FIRST(w, u)
#define IO_JOIN2(v, w, t, u) IO_JOIN(v, t) IO_JOIN(w, u)

/* One of four columns. SECOND is smlal2 where 16-bit sums of two products cannot overflow;
 * otherwise smull2, and SUMS are added in between. */
#define IO_COLUMN_0(SECOND, SUMS)                                                                  \
    IO_LOW(b0, IO_LOAD(h0, w, 32), IO_LOAD(h1, w, 40), IO_LOAD(h2, w, 48), IO_LOAD(h3, w, 56))     \
    SUMS(0, "", "", "", "")                                                                        \
    IO_HIGH(SECOND, b0, "", "", "", "")                                                            \
    IO_FIRST2(b2, b3, h0, h2)                                                                      \
    IO_ADD(0, "", IO_JOIN2(b2, b3, h1, h3), "", "")
#define IO_COLUMN_1(SECOND, SUMS)                                                                  \
    IO_LOW(b1, IO_LOAD(h0, next, 0), IO_LOAD(h1, next, 8), IO_LOAD(h2, next, 16),                  \
           IO_LOAD(h3, next, 24))                                                                  \
    SUMS(1, "", "", "", "")                                                                        \
    IO_HIGH(SECOND, b1, "", "", "", "")                                                            \
    IO_FIRST2(b0, b1, h0, h2)                                                                      \
    IO_ADD(1, "", IO_JOIN2(b0, b1, h1, h3), "", "")
#define IO_COLUMN_2(SECOND, SUMS)                                                                  \
    IO_LOW(b2, IO_ROW(0, 0), IO_ROW(1, 0), IO_ROW(2, 0), IO_ROW(3, 0))                             \
    SUMS(2, "", "", "", "")                                                                        \
    IO_HIGH(SECOND, b2, IO_LOAD(h0, from0, 8), IO_LOAD(h1, from1, 8), IO_LOAD(h2, from2, 8),       \
            IO_LOAD(h3, from3, 8))                                                                 \
    IO_ADD(2, IO_FLIP(r0), IO_FLIP(r1), IO_FLIP(r2), IO_FLIP(r3))
#define IO_COLUMN_3(SECOND, SUMS)                                                                  \
    IO_LOW(b3, IO_FLIP(h0), IO_FLIP(h1), IO_FLIP(h2), IO_FLIP(h3))                                 \
    SUMS(3, "", "", "", "")                                                                        \
    IO_HIGH(SECOND, b3, IO_NEXT(0), IO_NEXT(1), IO_NEXT(2), IO_NEXT(3))                            \
    IO_FIRST2(x0, x1, r0, r1)                                                                      \
    IO_FIRST2(x2, x3, r2, r3)                                                                      \
    IO_JOIN2(x0, x1, h0, h1)                                                                       \
    IO_JOIN2(x2, x3, h2, h3)                                                                       \
    IO_ADD(3, "subs %[steps], %[steps], #1\n", IO_ONWARD(w), IO_ONWARD(next), "b.ne 1b\n")
#define IO_STEPS(SECOND, SUMS)                                                                     \
    "1:\n" IO_COLUMN_0(SECOND, SUMS) IO_COLUMN_1(SECOND, SUMS) IO_COLUMN_2(SECOND, SUMS)           \
        IO_COLUMN_3(SECOND, SUMS)
#define IO_NO_SUMS(j, A, B, C, D)

/* Sixteen values of four rows and of two columns, loaded in advance. */
typedef struct {
    vi x[4], b[2];
} i8_loaded;

/* Where a step's rows and the rest of its panel are loaded from. */
typedef struct {
    const i8_row *row[4];
    const i8_value *w, *next; /* the panel of this step, of the one that follows */
} i8_source;

/* `steps` > 0 steps; each loads the rows of the following one. */
EK_INLINE void i8_steps_in_order(i8_sums *sums, i8_loaded *now, i8_source *from, long steps,
                                 const i8_rows a) {
    const uint64_t flip = (uint32_t)a.flip * UINT64_C(0x100000001);
    vi b2, b3, p0, p1, p2, p3;
    uint64_t h0, h1, h2, h3, r0, r1, r2, r3;
#define IO_OPERANDS                                                                                \
    [s00] "+w"(sums->of[0][0]), [s01] "+w"(sums->of[0][1]), [s02] "+w"(sums->of[0][2]),            \
        [s03] "+w"(sums->of[0][3]), [s10] "+w"(sums->of[1][0]), [s11] "+w"(sums->of[1][1]),        \
        [s12] "+w"(sums->of[1][2]), [s13] "+w"(sums->of[1][3]), [s20] "+w"(sums->of[2][0]),        \
        [s21] "+w"(sums->of[2][1]), [s22] "+w"(sums->of[2][2]), [s23] "+w"(sums->of[2][3]),        \
        [s30] "+w"(sums->of[3][0]), [s31] "+w"(sums->of[3][1]), [s32] "+w"(sums->of[3][2]),        \
        [s33] "+w"(sums->of[3][3]), [x0] "+w"(now->x[0]), [x1] "+w"(now->x[1]),                    \
        [x2] "+w"(now->x[2]), [x3] "+w"(now->x[3]), [b0] "+w"(now->b[0]), [b1] "+w"(now->b[1]),    \
        [b2] "=&w"(b2), [b3] "=&w"(b3), [p0] "=&w"(p0), [p1] "=&w"(p1), [p2] "=&w"(p2),            \
        [p3] "=&w"(p3), [h0] "=&r"(h0), [h1] "=&r"(h1), [h2] "=&r"(h2), [h3] "=&r"(h3),            \
        [r0] "=&r"(r0), [r1] "=&r"(r1), [r2] "=&r"(r2), [r3] "=&r"(r3),                            \
        [from0] "+r"(from->row[0]), [from1] "+r"(from->row[1]), [from2] "+r"(from->row[2]),        \
        [from3] "+r"(from->row[3]), [w] "+r"(from->w), [next] "+r"(from->next),                    \
        [steps] "+r"(steps) : [flip] "r"(flip), [step] "r"(a.step) : "cc", "memory"
    if (a.narrow)
        __asm__(IO_STEPS("smlal2", IO_NO_SUMS) : IO_OPERANDS);
    else
        __asm__(IO_STEPS("smull2", IO_ADD) : IO_OPERANDS);
#undef IO_OPERANDS
}

/* `count` segments of `length` values of k, with rows at [segment][MR] in the table. The last step
 * loads operands that it has had: nothing follows them. */
EK_INLINE const i8_value *i8_segments_in_order(i8_sums *sums, const i8_row *const *table,
                                               long count, long length, const i8_rows a,
                                               const i8_value *w) {
    i8_loaded now = {.b = {i8_vector(w), i8_vector(w + 16)}};
    i8_source from = {.w = w, .next = w + 4 * I8_STEP};
    long steps = length / I8_STEP - 1;
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        now.x[i] = i8_vector(table[i]) ^ vi_splat(a.flip);
        from.row[i] = table[i] + a.step;
    }
    for (;; count--) {
        if (steps)
            i8_steps_in_order(sums, &now, &from, steps, a);
        if (!count)
            return from.w;
        if (count > 1)
            steps = length / I8_STEP, table += MR;
        else
            steps = 1, from.next = from.w;
        EK_UNROLL
        for (int i = 0; i < 4; i++)
            from.row[i] = table[i];
    }
}
#endif
