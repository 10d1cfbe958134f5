/* Eight rows of f16 x two vectors of a packed panel, for 64-bit ARM cores in order; part of
 * f32_tile.h.
 *
 * While it loads a whole vector, a Cortex-A55 issues no multiply-add: for two cycles, so that loads
 * take a third as long as the products. Loads of 64 bits, and inserting them into a vector, go
 * beside multiply-adds (ncnn, docs/developer-guide/arm-a53-a55-dual-issue.md). So vectors are
 * loaded in halves, each after a product that needs neither. It is in assembly because compilers
 * join the halves, or move the loads together. The same for f32 makes whole networks 3 to 6 %
 * slower: outputs, twice as large, then wait to be stored. */
#ifndef EK_GEMM_F16_IN_ORDER_H
#define EK_GEMM_F16_IN_ORDER_H

#define F16_IN_ORDER(mr, nv) ((mr) == 8 && (nv) == 2)

/* The products of row i by lane l and the vectors b0 and b1, with y and z beside them. */
#define IO_ROW(i, l, b, y, z)                                                                      \
    "fmla %[s" #i "0].8h, %[" #b "0].8h, %[a" #i "].h[" #l "]\n" y "fmla %[s" #i "1].8h, %[" #b    \
    "1].8h, %[a" #i "].h[" #l "]\n" z

/* A vector of the panel, in halves: the upper one waits in an integer register. */
#define IO_LOW(v, at) "ldr %d[" #v "], [%[w], #" #at "]\n"
#define IO_HIGH(t, at) "ldr %[" #t "], [%[w], #" #at " + 8]\n"
#define IO_JOIN(v, t) "mov %[" #v "].d[1], %[" #t "]\n"
/* The next half of row i. A row's vector is replaced by halves: first the lower one, when only
 * the upper one is still multiplied, then the upper one. */
#define IO_READ(t, i) "ldr %[t" #t "], [%[x" #i "]], #8\n"
#define IO_PUT(t, i, half) "mov %[a" #i "].d[" #half "], %[t" #t "]\n"
#define IO_AHEAD(at) "prfm pldl1keep, [%[w], #" #at " + 512]\n"
/* In the last group of steps, which has no next one. */
#define IO_NO_LOW(v, at)
#define IO_NO_HIGH(t, at)
#define IO_NO_JOIN(v, t)
#define IO_NO_READ(t, i)
#define IO_NO_PUT(t, i, half)

/* A step by lane l and the vectors b. It loads those of the next step, n, and the next half of some
 * rows, unless B or A is IO_NO. */
#define IO_STEP(l, b, n, at, half, i, j, B, A)                                                     \
    IO_ROW(0, l, b, B##_LOW(n##0, at), B##_HIGH(h0, at))                                           \
    IO_ROW(1, l, b, B##_LOW(n##1, at + 16), B##_HIGH(h1, at + 16))                                 \
    IO_ROW(2, l, b, A##_READ(0, i), A##_READ(1, j))                                                \
    IO_ROW(3, l, b, B##_JOIN(n##0, h0), B##_JOIN(n##1, h1))                                        \
    IO_ROW(4, l, b, "", "")                                                                        \
    IO_ROW(5, l, b, IO_AHEAD(at), "")                                                              \
    IO_ROW(6, l, b, "", A##_PUT(0, i, half))                                                       \
    IO_ROW(7, l, b, "", A##_PUT(1, j, half))
#define IO_GROUP(B, A)                                                                             \
    IO_STEP(0, b, n, 32, 1, 0, 1, IO, IO)                                                          \
    IO_STEP(1, n, b, 64, 1, 2, 3, IO, IO)                                                          \
    IO_STEP(2, b, n, 96, 1, 4, 5, IO, IO)                                                          \
    IO_STEP(3, n, b, 128, 1, 6, 7, IO, IO)                                                         \
    IO_STEP(4, b, n, 160, 0, 0, 1, IO, A)                                                          \
    IO_STEP(5, n, b, 192, 0, 2, 3, IO, A)                                                          \
    IO_STEP(6, b, n, 224, 0, 4, 5, IO, A)                                                          \
    IO_STEP(7, n, b, 256, 0, 6, 7, B, A)
#define IO_SUMS(i) [s##i##0] "+w"(acc[i][0]), [s##i##1] "+w"(acc[i][1])
#define IO_FIRST(i) "ldr %d[a" #i "], [%[x" #i "]], #8\n"

/* Eight rows by `groups` > 0 times EK_VL steps of a panel of two vectors. */
EK_INLINE void f16_rows_in_order(vf acc[MR][NV], const ek_real *const row[MR], const ek_real *w,
                                 long groups) {
    const ek_real *x0 = row[0], *x1 = row[1], *x2 = row[2], *x3 = row[3];
    const ek_real *x4 = row[4], *x5 = row[5], *x6 = row[6], *x7 = row[7];
    vf a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, n0, n1;
    unsigned long h0, h1, t0, t1, t2, t3;
    __asm__(IO_FIRST(0) IO_FIRST(1) IO_FIRST(2) IO_FIRST(3) IO_FIRST(4) IO_FIRST(5) IO_FIRST(6)
                IO_FIRST(7) "ldp %q[b0], %q[b1], [%[w]]\n"
                            "subs %[groups], %[groups], #1\n"
                            "b.eq 2f\n"
                            "1:\n" IO_GROUP(IO, IO) "add %[w], %[w], %[bytes]\n"
                                                    "subs %[groups], %[groups], #1\n"
                                                    "b.ne 1b\n"
                                                    "2:\n" IO_GROUP(IO_NO, IO_NO)
            : IO_SUMS(0), IO_SUMS(1), IO_SUMS(2), IO_SUMS(3), IO_SUMS(4), IO_SUMS(5), IO_SUMS(6),
              IO_SUMS(7), [a0] "=&x"(a0), [a1] "=&x"(a1), [a2] "=&x"(a2), [a3] "=&x"(a3),
              [a4] "=&x"(a4), [a5] "=&x"(a5), [a6] "=&x"(a6), [a7] "=&x"(a7), [b0] "=&w"(b0),
              [b1] "=&w"(b1), [n0] "=&w"(n0), [n1] "=&w"(n1), [h0] "=&r"(h0), [h1] "=&r"(h1),
              [t0] "=&r"(t0), [t1] "=&r"(t1), [t2] "=&r"(t2), [t3] "=&r"(t3), [x0] "+r"(x0),
              [x1] "+r"(x1), [x2] "+r"(x2), [x3] "+r"(x3), [x4] "+r"(x4), [x5] "+r"(x5),
              [x6] "+r"(x6), [x7] "+r"(x7), [w] "+r"(w), [groups] "+r"(groups)
            : [bytes] "n"(2 * EK_VL * EK_VL * sizeof(ek_real))
            : "cc", "memory");
}
#endif
