/* A register tile of rows by a packed panel, for 64-bit ARM cores out of order whose multiply-add
 * is two micro-operations, as on Cortex-A57 and A72; part of f32_tile.h.
 *
 * Such a core takes a multiply-add and one load per cycle. A load of two vectors, or several loads
 * in a row, take the place of a multiply-add; products just behind their load wait for it. It is in
 * assembly because compilers join loads, move them together and change their order, which the
 * core's prefetcher does not follow. */
#ifndef EK_GEMM_F32_OUT_OF_ORDER_H
#define EK_GEMM_F32_OUT_OF_ORDER_H

#define F32_OUT_OF_ORDER(mr, nv) ((mr) == MR && (nv) == NV)

/* The product of row i by lane l and vector b of the panel: a part of the sum in column j. */
#define OO_F(i, j, b, l) "fmla %[s" #i #j "].4s, %[" #b #j "].4s, %[a" #i "].s[" #l "]\n"
#define OO_LOAD(v, at) "ldr %q[" #v "], [%[w], #" #at "]\n"
#define OO_ROW(i) "ldr %q[a" #i "], [%[x" #i "], %[next]]\n"
#define OO_NO_LOAD(v, at)
#define OO_NO_ROW(i)
#define OO_AHEAD_BY(at, ahead) "prfm pldl1keep, [%[w], #" #at " + " #ahead "]\n"
#define OO_AHEAD_OF(at, ahead) OO_AHEAD_BY(at, ahead)
#define OO_AHEAD(at) OO_AHEAD_OF(at, F32_PREFETCH_BYTES)
#ifndef F32_PREFETCH_BYTES
#define F32_PREFETCH_BYTES 512
#endif
#define OO_SUM(i, j) [s##i##j] "+w"(acc[i][j])
#define OO_X(i) [a##i] "+w"(a[i])
#define OO_FROM(i) [x##i] "r"(x[i])
#define OO_W(j) [b##j] "+w"(b[j]), [n##j] "=&w"(n[j])

#if NV == 2
#define OO_TILE(i, b, l, load) OO_F(i, 0, b, l) load OO_F(i, 1, b, l)
#define OO_THIRD(B, v, at) ""
#define OO_FOURTH(B, v, at) ""
#define OO_SUMS(i) OO_SUM(i, 0), OO_SUM(i, 1)
#define OO_PANEL OO_W(0), OO_W(1)
#define OO_STEPS(B, A)                                                                             \
    OO_STEP(0, b, n, 32, OO_AHEAD(0), OO, OO_NO)                                                   \
    OO_STEP(1, n, b, 64, "", OO, OO_NO)                                                            \
    OO_STEP(2, b, n, 96, OO_AHEAD(64), OO, OO_NO)                                                  \
    OO_STEP(3, n, b, 128, "", B, A)
#elif NV == 3
#define OO_TILE(i, b, l, load) OO_F(i, 0, b, l) load OO_F(i, 1, b, l) OO_F(i, 2, b, l)
#define OO_THIRD(B, v, at) B##_LOAD(v, at)
#define OO_FOURTH(B, v, at) ""
#define OO_SUMS(i) OO_SUM(i, 0), OO_SUM(i, 1), OO_SUM(i, 2)
#define OO_PANEL OO_W(0), OO_W(1), OO_W(2)
#define OO_STEPS(B, A)                                                                             \
    OO_STEP(0, b, n, 48, OO_AHEAD(0), OO, OO_NO)                                                   \
    OO_STEP(1, n, b, 96, OO_AHEAD(64), OO, OO_NO)                                                  \
    OO_STEP(2, b, n, 144, OO_AHEAD(128), OO, OO_NO)                                                \
    OO_STEP(3, n, b, 192, "", B, A)
#else
#define OO_TILE(i, b, l, load)                                                                     \
    OO_F(i, 0, b, l) load OO_F(i, 1, b, l) OO_F(i, 2, b, l) OO_F(i, 3, b, l)
#define OO_THIRD(B, v, at) B##_LOAD(v, at)
#define OO_FOURTH(B, v, at) B##_LOAD(v, at)
#define OO_SUMS(i) OO_SUM(i, 0), OO_SUM(i, 1), OO_SUM(i, 2), OO_SUM(i, 3)
#define OO_PANEL OO_W(0), OO_W(1), OO_W(2), OO_W(3)
#define OO_STEPS(B, A)                                                                             \
    OO_STEP(0, b, n, 64, OO_AHEAD(0), OO, OO_NO)                                                   \
    OO_STEP(1, n, b, 128, OO_AHEAD(64), OO, OO_NO)                                                 \
    OO_STEP(2, b, n, 192, OO_AHEAD(128), OO, OO_NO)                                                \
    OO_STEP(3, n, b, 256, OO_AHEAD(192), B, A)
#endif

/* A step by lane l and the vectors b. It loads those of the next step, n, and, by the last lane,
 * the next values of each row, unless B or A is OO_NO. */
#define OO_FOUR_ROWS(l, b, n, at, ahead, B, A)                                                     \
    OO_TILE(0, b, l, B##_LOAD(n##0, at))                                                           \
    A##_ROW(0) OO_TILE(1, b, l, B##_LOAD(n##1, at + 16)) A##_ROW(1)                                \
        OO_TILE(2, b, l, OO_THIRD(B, n##2, at + 32)) A##_ROW(2)                                    \
            OO_TILE(3, b, l, OO_FOURTH(B, n##3, at + 48)) ahead A##_ROW(3)
#if MR == 8
#define OO_STEP(l, b, n, at, ahead, B, A)                                                          \
    OO_FOUR_ROWS(l, b, n, at, ahead, B, A)                                                         \
    OO_TILE(4, b, l, "")                                                                           \
    A##_ROW(4) OO_TILE(5, b, l, "") A##_ROW(5) OO_TILE(6, b, l, "") A##_ROW(6)                     \
        OO_TILE(7, b, l, "") A##_ROW(7)
#define OO_ROWS(m) m(0), m(1), m(2), m(3), m(4), m(5), m(6), m(7)
#elif MR == 6
#define OO_STEP(l, b, n, at, ahead, B, A)                                                          \
    OO_FOUR_ROWS(l, b, n, at, ahead, B, A)                                                         \
    OO_TILE(4, b, l, "") A##_ROW(4) OO_TILE(5, b, l, "") A##_ROW(5)
#define OO_ROWS(m) m(0), m(1), m(2), m(3), m(4), m(5)
#else
#define OO_STEP(l, b, n, at, ahead, B, A) OO_FOUR_ROWS(l, b, n, at, ahead, B, A)
#define OO_ROWS(m) m(0), m(1), m(2), m(3)
#endif

/* MR rows by `groups` > 0 times four steps of a panel of NV vectors. */
EK_INLINE void f32_rows_out_of_order(vf acc[MR][NV], const float *const x[MR], const float *w,
                                     long groups) {
    vf a[MR], b[NV], n[NV];
    long next = F32_ROW_STEP * sizeof *w;
    EK_UNROLL
    for (int i = 0; i < MR; i++)
        a[i] = vf_load(x[i]);
    EK_UNROLL
    for (int j = 0; j < NV; j++)
        b[j] = vf_load(w + j * EK_VL);
    __asm__(
        "subs %[groups], %[groups], #1\n"
        "b.eq 2f\n"
        "1:\n" OO_STEPS(OO, OO) "add %[w], %[w], %[bytes]\n"
                                "add %[next], %[next], %[step]\n"
                                "subs %[groups], %[groups], #1\n"
                                "b.ne 1b\n"
                                "2:\n" OO_STEPS(OO_NO, OO_NO)
        : OO_ROWS(OO_SUMS), OO_ROWS(OO_X),
          OO_PANEL, [w] "+r"(w), [next] "+r"(next), [groups] "+r"(groups)
        : OO_ROWS(OO_FROM), [bytes] "n"(4 * NV * sizeof(vf)), [step] "n"(F32_ROW_STEP * sizeof *w)
        : "cc", "memory");
}
#endif
