/* Eight rows (or four, on a Cortex-A53) x two vectors of a packed panel, for 64-bit ARM cores in
 * order; part of f32_tile.h.
 *
 * While such a core loads a whole vector, it issues no multiply-add: for two cycles, so that loads
 * take a third to half as long as the products. Loads of 64 bits into integer registers go beside
 * multiply-adds, on a Cortex-A55 also those into vectors and insertions (ncnn,
 * docs/developer-guide/arm-a53-a55-dual-issue.md). A Cortex-A53 inserts beside loads and other
 * insertions only (github.com/daniestevez/qsdr, qsdr-benchmarks, which measured it). It is in
 * assembly because compilers join halves, or move the loads together. */
#ifndef EK_GEMM_F32_IN_ORDER_H
#define EK_GEMM_F32_IN_ORDER_H

/* The fewest groups of EK_VL steps. A Cortex-A55 that reads rows of f32 half by half waits longer
 * for each line of them: short rows gain nothing. */
#if !defined EK_HALF && defined __ARM_FEATURE_DOTPROD && !F32_INTERLEAVED
#define F32_IN_ORDER_GROUPS 4
#else
#define F32_IN_ORDER_GROUPS 1
#endif

#ifdef EK_HALF
#define IO_ALL ".8h"
#define IO_LANE ".h"
#define IO_HALF_BYTES 128 /* of the panel, for half a vector of each row */
#else
#define IO_ALL ".4s"
#define IO_LANE ".s"
#define IO_HALF_BYTES 64
#endif

/* The product of row i by lane l and vector b of the panel: a part of the sum in column j. */
#define IO_F(i, j, b, l)                                                                           \
    "fmla %[s" #i #j "]" IO_ALL ", %[" #b #j "]" IO_ALL ", %[a" #i "]" IO_LANE "[" #l "]\n"
#define IO_AHEAD(at) "prfm pldl1keep, [%[w], #" #at " + 512]\n"
/* Halves of a vector of the panel. */
#define IO_LOW(v, at) "ldr %d[" #v "], [%[w], #" #at "]\n"
#define IO_HIGH(t, at) "ldr %[" #t "], [%[w], #" #at " + 8]\n"
#define IO_LOAD(t, at) "ldr %[" #t "], [%[w], #" #at "]\n"
#define IO_FIRST(v, t) "fmov %d[" #v "], %[" #t "]\n"
#define IO_JOIN(v, t) "mov %[" #v "].d[1], %[" #t "]\n"
/* The next half of row i, directly or through an integer register; `at`: of interleaved rows. */
#if F32_INTERLEAVED
#define IO_PLACE(i, at) "[%[x0], #16 * " #i " + " #at "]\n"
#else
#define IO_PLACE(i, at) "[%[x" #i "]], #8\n"
#endif
#define IO_ROW(i, at) "ldr %d[a" #i "], " IO_PLACE(i, at)
#define IO_READ(i, at) "ldr %[t" #i "], " IO_PLACE(i, at)
#define IO_PUT(i) IO_FIRST(a##i, t##i)
/* In the last group of steps, which has no next one. */
#define IO_NO_LOW(v, at)
#define IO_NO_HIGH(t, at)
#define IO_NO_LOAD(t, at)
#define IO_NO_FIRST(v, t)
#define IO_NO_JOIN(v, t)
#define IO_NO_ROW(i, at)
#define IO_NO_READ(i, at)
#define IO_NO_PUT(i)

#if defined EK_HALF || defined __ARM_FEATURE_DOTPROD /* as a Cortex-A55 */
/* A step by lane l and the vectors b. It loads those of the next step, n, and, by the last lane,
 * the next half of each row, unless B or A is IO_NO. */
#define IO_STEP(l, b, n, at, ahead, from, B, A)                                                    \
    IO_F(0, 0, b, l)                                                                               \
    B##_LOW(n##0, at) IO_F(0, 1, b, l) B##_HIGH(h0, at) IO_F(1, 0, b, l) B##_LOW(n##1, at + 16)    \
        IO_F(1, 1, b, l) B##_HIGH(h1, at + 16) IO_F(2, 0, b, l) A##_ROW(0, from) IO_F(2, 1, b, l)  \
            A##_ROW(1, from) IO_F(3, 0, b, l) ahead IO_F(3, 1, b, l) A##_ROW(2, from)              \
                IO_F(4, 0, b, l) A##_ROW(3, from) B##_JOIN(n##0, h0) IO_F(4, 1, b, l)              \
                    IO_F(5, 0, b, l) A##_ROW(4, from) B##_JOIN(n##1, h1) IO_F(5, 1, b, l)          \
                        IO_F(6, 0, b, l) A##_ROW(5, from) IO_F(6, 1, b, l) IO_F(7, 0, b, l)        \
                            A##_ROW(6, from) IO_F(7, 1, b, l) A##_ROW(7, from)
#ifdef EK_HALF
#define IO_HALF(at, from, B, A)                                                                    \
    IO_STEP(0, b, n, at + 32, IO_AHEAD(at), from, IO, IO_NO)                                       \
    IO_STEP(1, n, b, at + 64, "", from, IO, IO_NO)                                                 \
    IO_STEP(2, b, n, at + 96, IO_AHEAD(at + 64), from, IO, IO_NO)                                  \
    IO_STEP(3, n, b, at + 128, "", from, B, A)
#else
#define IO_HALF(at, from, B, A)                                                                    \
    IO_STEP(0, b, n, at + 32, IO_AHEAD(at), from, IO, IO_NO)                                       \
    IO_STEP(1, n, b, at + 64, "", from, B, A)
#endif
#else
#define IO_COPIES
/* The same for both lanes of f32. A Cortex-A53 issues loads into integer registers beside
 * multiply-adds, but copies from there only beside each other. It prefetches five lines ahead, and
 * only two streams, of which rows take one: a panel that comes from memory would be late. */
#define IO_FAR(at) "prfm pldl1keep, [%[w], #" #at " - 64 + 1024]\n"
#define IO_F2(i, b, l, x, y) IO_F(i, 0, b, l) x IO_F(i, 1, b, l) y
#define IO_FIRST_STEP(b, n, at, from, B, A)                                                        \
    IO_F2(0, b, 0, B##_LOAD(h0, at), B##_LOAD(h1, at + 8))                                         \
    IO_F2(1, b, 0, B##_LOAD(h2, at + 16), B##_LOAD(h3, at + 24))                                   \
    IO_F2(2, b, 0, A##_READ(0, from), A##_READ(1, from))                                           \
    IO_F2(3, b, 0, A##_READ(2, from), A##_READ(3, from))                                           \
    B##_FIRST(n##0, h0) B##_FIRST(n##1, h2) IO_F2(4, b, 0, A##_READ(4, from), A##_READ(5, from))   \
        IO_F2(5, b, 0, A##_READ(6, from), A##_READ(7, from)) B##_JOIN(n##0, h1) B##_JOIN(n##1, h3) \
            IO_F2(6, b, 0, "", "") IO_F2(7, b, 0, "", "")
#define IO_SECOND_STEP(b, n, at, B, A)                                                             \
    IO_F2(0, b, 1, B##_LOAD(h0, at), B##_LOAD(h1, at + 8))                                         \
    IO_F2(1, b, 1, B##_LOAD(h2, at + 16), B##_LOAD(h3, at + 24))                                   \
    A##_PUT(0) A##_PUT(1) IO_F2(2, b, 1, IO_FAR(at), "") IO_F2(3, b, 1, "", "") A##_PUT(2)         \
        A##_PUT(3) B##_FIRST(n##0, h0) B##_FIRST(n##1, h2) IO_F2(4, b, 1, "", "")                  \
            IO_F2(5, b, 1, "", "") A##_PUT(4) A##_PUT(5) B##_JOIN(n##0, h1) B##_JOIN(n##1, h3)     \
                IO_F2(6, b, 1, "", "") IO_F2(7, b, 1, "", "") A##_PUT(6) A##_PUT(7)
/* The same for four rows. */
#define IO_FIRST_OF_FOUR(b, n, at, from, B, A)                                                     \
    IO_F2(0, b, 0, B##_LOAD(h0, at), B##_LOAD(h1, at + 8))                                         \
    IO_F2(1, b, 0, B##_LOAD(h2, at + 16), B##_LOAD(h3, at + 24))                                   \
    IO_F2(2, b, 0, A##_READ(0, from), A##_READ(1, from))                                           \
    B##_FIRST(n##0, h0) B##_FIRST(n##1, h2) IO_F(3, 0, b, 0) A##_READ(2, from) B##_JOIN(n##0, h1)  \
        B##_JOIN(n##1, h3) IO_F(3, 1, b, 0) A##_READ(3, from)
#define IO_SECOND_OF_FOUR(b, n, at, B, A)                                                          \
    IO_F2(0, b, 1, B##_LOAD(h0, at), B##_LOAD(h1, at + 8))                                         \
    IO_F2(1, b, 1, B##_LOAD(h2, at + 16), B##_LOAD(h3, at + 24))                                   \
    A##_PUT(0) A##_PUT(1) IO_F2(2, b, 1, IO_FAR(at), "") B##_FIRST(n##0, h0) B##_FIRST(n##1, h2)   \
        IO_F(3, 0, b, 1) B##_JOIN(n##0, h1) B##_JOIN(n##1, h3) IO_F(3, 1, b, 1) A##_PUT(2)         \
            A##_PUT(3)
#define IO_HALF_OF_FOUR(at, from, B, A)                                                            \
    IO_FIRST_OF_FOUR(b, n, at + 32, from, IO, A) IO_SECOND_OF_FOUR(n, b, at + 64, B, A)
#define IO_GROUP_OF_FOUR(B, A)                                                                     \
    IO_HALF_OF_FOUR(0, 8, IO, IO) IO_HALF_OF_FOUR(IO_HALF_BYTES, 128, B, A)
#define IO_HALF(at, from, B, A)                                                                    \
    IO_FIRST_STEP(b, n, at + 32, from, IO, A) IO_SECOND_STEP(n, b, at + 64, B, A)
#endif
#define IO_GROUP(B, A) IO_HALF(0, 8, IO, IO) IO_HALF(IO_HALF_BYTES, 128, B, A)
#define IO_SUMS(i) [s##i##0] "+w"(acc[i][0]), [s##i##1] "+w"(acc[i][1])

#if !F32_INTERLEAVED
#define IO_ADVANCE
#define IO_POINTERS                                                                                \
    [x0] "+r"(x0), [x1] "+r"(x1), [x2] "+r"(x2), [x3] "+r"(x3), [x4] "+r"(x4), [x5] "+r"(x5),      \
        [x6] "+r"(x6), [x7] "+r"(x7)
#else
#define IO_ADVANCE "add %[x0], %[x0], #128\n"
#define IO_POINTERS [x0] "+r"(x0)
#endif

#ifdef IO_COPIES
#define IO_TEMPORARIES                                                                             \
    [h0] "=&r"(h0), [h1] "=&r"(h1), [h2] "=&r"(h2), [h3] "=&r"(h3), [t0] "=&r"(t0),                \
        [t1] "=&r"(t1), [t2] "=&r"(t2), [t3] "=&r"(t3), [t4] "=&r"(t4), [t5] "=&r"(t5),            \
        [t6] "=&r"(t6), [t7] "=&r"(t7)
#else
#define IO_TEMPORARIES [h0] "=&r"(h0), [h1] "=&r"(h1)
#endif

/* Eight rows by `groups` > 0 times EK_VL steps of a panel of two vectors. */
EK_INLINE void f32_eight_in_order(vf acc[MR][NV], const ek_real *const row[MR], const ek_real *w,
                                  long groups) {
    const ek_real *x0 = row[0];
#if !F32_INTERLEAVED
    const ek_real *x1 = row[1], *x2 = row[2], *x3 = row[3];
    const ek_real *x4 = row[4], *x5 = row[5], *x6 = row[6], *x7 = row[7];
#endif
    vf a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, n0, n1;
    unsigned long h0, h1;
#ifdef IO_COPIES
    unsigned long h2, h3, t0, t1, t2, t3, t4, t5, t6, t7;
#endif
    __asm__(IO_ROW(0, 0) IO_ROW(1, 0) IO_ROW(2, 0) IO_ROW(3, 0) IO_ROW(4, 0) IO_ROW(5, 0)
                IO_ROW(6, 0) IO_ROW(7, 0) "ldp %q[b0], %q[b1], [%[w]]\n"
                                          "subs %[groups], %[groups], #1\n"
                                          "b.eq 2f\n"
                                          "1:\n" IO_GROUP(IO, IO) IO_ADVANCE
            "add %[w], %[w], %[bytes]\n"
            "subs %[groups], %[groups], #1\n"
            "b.ne 1b\n"
            "2:\n" IO_GROUP(IO_NO, IO_NO)
            : IO_SUMS(0), IO_SUMS(1), IO_SUMS(2), IO_SUMS(3), IO_SUMS(4), IO_SUMS(5), IO_SUMS(6),
              IO_SUMS(7), [a0] "=&x"(a0), [a1] "=&x"(a1), [a2] "=&x"(a2), [a3] "=&x"(a3),
              [a4] "=&x"(a4), [a5] "=&x"(a5), [a6] "=&x"(a6), [a7] "=&x"(a7), [b0] "=&w"(b0),
              [b1] "=&w"(b1), [n0] "=&w"(n0), [n1] "=&w"(n1), IO_TEMPORARIES,
              IO_POINTERS, [w] "+r"(w), [groups] "+r"(groups)
            : [bytes] "n"(2 * EK_VL * EK_VL * sizeof(ek_real))
            : "cc", "memory");
}

#ifdef IO_COPIES
#if !F32_INTERLEAVED
#define IO_FOUR_POINTERS [x0] "+r"(x0), [x1] "+r"(x1), [x2] "+r"(x2), [x3] "+r"(x3)
#else
#define IO_FOUR_POINTERS IO_POINTERS
#endif

/* The same for four rows: the rest of an image. */
EK_INLINE void f32_four_in_order(vf acc[MR][NV], const ek_real *const row[MR], const ek_real *w,
                                 long groups) {
    const ek_real *x0 = row[0];
#if !F32_INTERLEAVED
    const ek_real *x1 = row[1], *x2 = row[2], *x3 = row[3];
#endif
    vf a0, a1, a2, a3, b0, b1, n0, n1;
    unsigned long h0, h1, h2, h3, t0, t1, t2, t3;
    __asm__(IO_ROW(0, 0) IO_ROW(1, 0) IO_ROW(2, 0) IO_ROW(3, 0) "ldp %q[b0], %q[b1], [%[w]]\n"
                                                                "subs %[groups], %[groups], #1\n"
                                                                "b.eq 2f\n"
                                                                "1:\n" IO_GROUP_OF_FOUR(IO, IO)
                                                                    IO_ADVANCE
            "add %[w], %[w], %[bytes]\n"
            "subs %[groups], %[groups], #1\n"
            "b.ne 1b\n"
            "2:\n" IO_GROUP_OF_FOUR(IO_NO, IO_NO)
            : IO_SUMS(0), IO_SUMS(1), IO_SUMS(2), IO_SUMS(3), [a0] "=&x"(a0), [a1] "=&x"(a1),
              [a2] "=&x"(a2), [a3] "=&x"(a3), [b0] "=&w"(b0), [b1] "=&w"(b1), [n0] "=&w"(n0),
              [n1] "=&w"(n1), [h0] "=&r"(h0), [h1] "=&r"(h1), [h2] "=&r"(h2), [h3] "=&r"(h3),
              [t0] "=&r"(t0), [t1] "=&r"(t1), [t2] "=&r"(t2), [t3] "=&r"(t3),
              IO_FOUR_POINTERS, [w] "+r"(w), [groups] "+r"(groups)
            : [bytes] "n"(2 * EK_VL * EK_VL * sizeof(ek_real))
            : "cc", "memory");
}
/* Six and seven rows count the last one several times, which is faster than compiled code. Not on a
 * Cortex-A55, which waits longer where rows come from memory. */
#define F32_IN_ORDER(mr, nv)                                                                       \
    (((mr) == 8 || (mr) == 4 || (((mr) == 6 || (mr) == 7) && !F32_INTERLEAVED)) && (nv) == 2)
#else
#define F32_IN_ORDER(mr, nv) ((mr) == 8 && (nv) == 2)
#endif
EK_INLINE void f32_rows_in_order(const int mr, vf acc[MR][NV], const ek_real *const row[MR],
                                 const ek_real *w, long groups) {
#ifdef IO_COPIES
    if (mr == 4) {
        f32_four_in_order(acc, row, w, groups);
        return;
    }
#endif
    const ek_real *rows[MR];
    EK_UNROLL
    for (int i = 0; i < 8; i++) {
        rows[i] = row[ek_min(i, mr - 1)];
        for (int j = 0; i >= mr && j < 2; j++)
            acc[i][j] = (vf){0};
    }
    f32_eight_in_order(acc, rows, w, groups);
}
#endif
