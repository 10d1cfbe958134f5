/* Products of eight tiles by eight channels of 16-bit values, for 64-bit ARM cores in order without
 * dot products; part of i8_winograd.c.
 *
 * As in gemm/f32_in_order.h, a Cortex-A53 issues loads into integer registers beside operations on
 * whole vectors, and copies from there only beside each other. */
#ifndef EK_I8_WINOGRAD_IN_ORDER_H
#define EK_I8_WINOGRAD_IN_ORDER_H

/* Products of tile i: its lane l by the weights b. X and Y are issued beside them. */
#define IO_MUL(i, b, l, X, Y)                                                                      \
    "smlal %[s" #i "0].4s, %[" #b "].4h, %[a" #i "].h[" #l "]\n" X "smlal2 %[s" #i "1].4s, %[" #b  \
    "].8h, %[a" #i "].h[" #l "]\n" Y
#define IO_ALONE(i, b, l) IO_MUL(i, b, l, "", "")
#define IO_LOAD(t, at) "ldr %[" #t "], [%[w], #" #at "]\n"
#define IO_READ(i, at) "ldr %[t" #i "], [%[x], #16 * " #i " + " #at "]\n"
#define IO_FIRST(v, t) "fmov %d[" #v "], %[" #t "]\n"
#define IO_JOIN(v, t) "mov %[" #v "].d[1], %[" #t "]\n"
#define IO_PUT(i) IO_FIRST(a##i, t##i)
#define IO_AHEAD(at) "prfm pldl1keep, [%[w], #" #at " + 1024]\n"
/* In the last group of channels, which has no next one. */
#define IO_NO_LOAD(t, at)
#define IO_NO_READ(i, at)
#define IO_NO_FIRST(v, t)
#define IO_NO_JOIN(v, t)
#define IO_NO_PUT(i)

/* Lanes 0 and 1 of a half, by the weights b0 and b1. The next weights, at `at`, become n0 and n1;
 * the next half of each tile is read, unless A is IO_NO. */
#define IO_FIRST_LANES(at, from, A)                                                                \
    IO_MUL(0, b0, 0, IO_LOAD(h0, at), IO_LOAD(h1, at + 8))                                         \
    IO_MUL(1, b0, 0, IO_LOAD(h2, at + 16), IO_LOAD(h3, at + 24))                                   \
    IO_MUL(2, b0, 0, A##_READ(0, from), A##_READ(1, from))                                         \
    IO_MUL(3, b0, 0, A##_READ(2, from), A##_READ(3, from))                                         \
    IO_MUL(4, b0, 0, A##_READ(4, from), A##_READ(5, from))                                         \
    IO_MUL(5, b0, 0, A##_READ(6, from), A##_READ(7, from))                                         \
    IO_ALONE(6, b0, 0)                                                                             \
    IO_ALONE(7, b0, 0)                                                                             \
    IO_FIRST(n0, h0)                                                                               \
    IO_FIRST(n1, h2)                                                                               \
    IO_ALONE(0, b1, 1)                                                                             \
    IO_ALONE(1, b1, 1)                                                                             \
    IO_ALONE(2, b1, 1)                                                                             \
    IO_ALONE(3, b1, 1)                                                                             \
    IO_JOIN(n0, h1)                                                                                \
    IO_JOIN(n1, h3) IO_ALONE(4, b1, 1) IO_ALONE(5, b1, 1) IO_ALONE(6, b1, 1) IO_ALONE(7, b1, 1)
/* Lanes 2 and 3, by n0 and n1; the weights at `at` become b0 and b1, unless B is IO_NO. */
#define IO_LAST_LANES(at, B, A)                                                                    \
    IO_MUL(0, n0, 2, B##_LOAD(h0, at), B##_LOAD(h1, at + 8))                                       \
    IO_MUL(1, n0, 2, B##_LOAD(h2, at + 16), B##_LOAD(h3, at + 24))                                 \
    IO_MUL(2, n0, 2, IO_AHEAD(at), "")                                                             \
    IO_ALONE(3, n0, 2)                                                                             \
    IO_ALONE(4, n0, 2)                                                                             \
    IO_ALONE(5, n0, 2)                                                                             \
    IO_ALONE(6, n0, 2)                                                                             \
    IO_ALONE(7, n0, 2)                                                                             \
    B##_FIRST(b0, h0) B##_FIRST(b1, h2) IO_ALONE(0, n1, 3) IO_ALONE(1, n1, 3) A##_PUT(0)           \
        A##_PUT(1) B##_JOIN(b0, h1) B##_JOIN(b1, h3) IO_ALONE(2, n1, 3) IO_ALONE(3, n1, 3)         \
            A##_PUT(2) A##_PUT(3) IO_ALONE(4, n1, 3) IO_ALONE(5, n1, 3) A##_PUT(4) A##_PUT(5)      \
                IO_ALONE(6, n1, 3) IO_ALONE(7, n1, 3) A##_PUT(6) A##_PUT(7)
/* Eight lanes of each tile: two halves. */
#define IO_GROUP(B, A)                                                                             \
    IO_FIRST_LANES(32, 8, IO)                                                                      \
    IO_LAST_LANES(64, IO, IO) IO_FIRST_LANES(96, 128, A) IO_LAST_LANES(128, B, A)
#define IO_SUMS(i) [s##i##0] "+w"(acc[i][0]), [s##i##1] "+w"(acc[i][1])

/* acc += products of `groups` > 0 groups of eight channels: tiles at x, weights at w. */
EK_INLINE void multiply_in_order(vi acc[8][NV], const int16_t *x, const int16_t *w, long groups) {
    vi a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, n0, n1;
    uint64_t h0, h1, h2, h3, t0, t1, t2, t3, t4, t5, t6, t7;
    __asm__(IO_READ(0, 0) IO_READ(1, 0) IO_READ(2, 0) IO_READ(3, 0) IO_READ(4, 0) IO_READ(5, 0)
                IO_READ(6, 0) IO_READ(7, 0) "ldp %q[b0], %q[b1], [%[w]]\n" IO_PUT(0) IO_PUT(1)
                    IO_PUT(2) IO_PUT(3) IO_PUT(4) IO_PUT(5) IO_PUT(6)
                        IO_PUT(7) "subs %[groups], %[groups], #1\n"
                                  "b.eq 2f\n"
                                  "1:\n" IO_GROUP(IO, IO) "add %[x], %[x], #128\n"
                                                          "add %[w], %[w], #128\n"
                                                          "subs %[groups], %[groups], #1\n"
                                                          "b.ne 1b\n"
                                                          "2:\n" IO_GROUP(IO_NO, IO_NO)
            : IO_SUMS(0), IO_SUMS(1), IO_SUMS(2), IO_SUMS(3), IO_SUMS(4), IO_SUMS(5), IO_SUMS(6),
              IO_SUMS(7), [a0] "=&x"(a0), [a1] "=&x"(a1), [a2] "=&x"(a2), [a3] "=&x"(a3),
              [a4] "=&x"(a4), [a5] "=&x"(a5), [a6] "=&x"(a6), [a7] "=&x"(a7), [b0] "=&w"(b0),
              [b1] "=&w"(b1), [n0] "=&w"(n0), [n1] "=&w"(n1), [h0] "=&r"(h0), [h1] "=&r"(h1),
              [h2] "=&r"(h2), [h3] "=&r"(h3), [t0] "=&r"(t0), [t1] "=&r"(t1), [t2] "=&r"(t2),
              [t3] "=&r"(t3), [t4] "=&r"(t4), [t5] "=&r"(t5), [t6] "=&r"(t6), [t7] "=&r"(t7),
              [x] "+r"(x), [w] "+r"(w), [groups] "+r"(groups)
            :
            : "cc", "memory");
}
#endif
