/* Up to four rows by several panels of four columns, of 8-bit products, for 64-bit ARM cores
 * without dot products; part of i8_tiles.c. For k = 64, a tile by itself takes half as long for
 * what comes before and after its products as for these. */
#ifndef EK_GEMM_I8_PANELS_AT_ONCE_H
#define EK_GEMM_I8_PANELS_AT_ONCE_H

#define AT_ONCE_DEPTH 2048 /* of the copied rows; beyond, tiles are long enough by themselves */
#define AT_ONCE_PANELS 2
/* A core in order multiplies four rows, of which the last repeats where there are three: for more
 * k, three by themselves are faster. */
#define AT_ONCE_ROWS(k) (I8_INTERLEAVED ? 2 : (k) <= 96 ? 3 : 4)

#if I8_INTERLEAVED
/* As i8_out_of_order.h, but the core does not wait between tiles: while it multiplies the first
 * values of a tile, it adds up the sums of the tile before and stores them. */

/* What is done for row i, if it is one of a tile's rows (i8_panels_of_rows.h). */
#define PO_OF(i, text) PO_OF_##i(text)
#define PO_OF_0(text) text
#define PO_OF_1(text) text
#define PO_LOW(i, x, b) PO_OF(i, "smull %[p" #i "].8h, %[" #x #i "].8b, %[" #b "].8b\n")
#define PO_HIGH(i, x, b) PO_OF(i, "smlal2 %[p" #i "].8h, %[" #x #i "].16b, %[" #b "].16b\n")
#define PO_ADD(i, j) PO_OF(i, "sadalp %[s" #i #j "].4s, %[p" #i "].8h\n")
#define PO_BEGIN(i, j) PO_OF(i, "saddlp %[s" #i #j "].4s, %[p" #i "].8h\n")
#define PO_LOAD(b, at) "ldr %q[" #b "], [%[w], #" #at "]\n"
#define PO_ROW(y, i, at) PO_OF(i, "ldr %q[" #y #i "], [%[a], #" #at "]\n")
/* Adds pairs of two vectors of a row's sums to the second one, or of the first two to the third. */
#define PO_PAIRS(i, j, k, to)                                                                      \
    PO_OF(i, "addp %[s" #i #to "].4s, %[s" #i #j "].4s, %[s" #i #k "].4s\n")
#define PO_STORE(i) PO_OF(i, "str %q[s" #i "3], [%[c" #i "], %[at]]\n")

/* A column of a step: A to D are issued beside the lower halves. */
#define PO_COLUMN(j, x, b, before, A, B, C, D)                                                     \
    PO_LOW(0, x, b)                                                                                \
    before A PO_LOW(1, x, b)                                                                       \
    B PO_LOW(2, x, b)                                                                              \
    C PO_LOW(3, x, b)                                                                              \
    D PO_HIGH(0, x, b) PO_HIGH(1, x, b) PO_ADD(0, j) PO_HIGH(2, x, b) PO_ADD(1, j)                 \
        PO_HIGH(3, x, b) PO_ADD(2, j)
/* Of the first step: B0 to B3 begin the sums of the column before; E to H go beside the upper
 * halves. */
#define PO_FIRST_COLUMN(x, b, B0, B1, B2, B3, A, B, C, D, E, F, G, H)                              \
    B0 PO_LOW(0, x, b)                                                                             \
    A B1 PO_LOW(1, x, b)                                                                           \
    B B2 PO_LOW(2, x, b)                                                                           \
    C B3 PO_LOW(3, x, b)                                                                           \
    D PO_HIGH(0, x, b)                                                                             \
    E PO_HIGH(1, x, b)                                                                             \
    F PO_HIGH(2, x, b)                                                                             \
    G PO_HIGH(3, x, b) H

/* The next step's rows are the tile's next ones or, behind its last step, its first ones; its
 * columns are those of the next panel then, or none. */
#define PO_COUNT "subs %[n], %[n], #1\n"
#define PO_ON "add %[a], %[a], #64\n"
#define PO_AGAIN "csel %[a], %[a], %[first], ne\n"
#define PO_GAP "csel %[t], xzr, %[gap], ne\n"
#define PO_DOWN "add %[w], %[w], #64\n"
#define PO_SKIP "add %[w], %[w], %[t]\n"
#define PO_STEPS "csel %[n], %[steps], %[n], eq\n"

#define PO_STEP(x, y)                                                                              \
    PO_COLUMN(0, x, b, PO_ADD(3, 3), PO_LOAD(c, 16), PO_COUNT, PO_ON, PO_AGAIN)                    \
    PO_COLUMN(1, x, c, PO_ADD(3, 0), PO_LOAD(b, 32), PO_ROW(y, 0, 0), PO_ROW(y, 1, 16), PO_GAP)    \
    PO_COLUMN(2, x, b, PO_ADD(3, 1), PO_LOAD(c, 48), PO_ROW(y, 2, 32), PO_ROW(y, 3, 48), PO_DOWN)  \
    PO_COLUMN(3, x, c, PO_ADD(3, 2), PO_SKIP, PO_LOAD(b, 0), PO_STEPS, "")

/* The first step of a tile, also adds up and stores the tile before. */
#define PO_FIRST(x, y)                                                                             \
    "cbz %[panels], 9f\n"                                                                          \
    "subs %[panels], %[panels], #1\n"                                                              \
    "csel %[gap], %[last], %[gap], eq\n" PO_FIRST_COLUMN(                                          \
        x, b, "", "", "", "", PO_ADD(3, 3) PO_LOAD(c, 16), PO_PAIRS(0, 2, 3, 3) PO_COUNT,          \
        PO_PAIRS(1, 2, 3, 3) PO_ON, PO_PAIRS(2, 2, 3, 3) PO_AGAIN, PO_PAIRS(3, 2, 3, 3),           \
        PO_PAIRS(0, 0, 1, 2), PO_PAIRS(1, 0, 1, 2), PO_PAIRS(2, 0, 1, 2))                          \
        PO_FIRST_COLUMN(x, c, PO_BEGIN(0, 0), PO_BEGIN(1, 0), PO_BEGIN(2, 0),                      \
                        PO_PAIRS(3, 0, 1, 2) PO_BEGIN(3, 0), PO_LOAD(b, 32), PO_ROW(y, 0, 0),      \
                        PO_ROW(y, 1, 16), PO_GAP, PO_PAIRS(0, 2, 3, 3), PO_PAIRS(1, 2, 3, 3),      \
                        PO_PAIRS(2, 2, 3, 3), PO_PAIRS(3, 2, 3, 3))                                \
            PO_FIRST_COLUMN(x, b, PO_BEGIN(0, 1), PO_BEGIN(1, 1), PO_BEGIN(2, 1), PO_BEGIN(3, 1),  \
                            PO_LOAD(c, 48), PO_ROW(y, 2, 32), PO_ROW(y, 3, 48), PO_DOWN,           \
                            PO_STORE(0), PO_STORE(1), PO_STORE(2), PO_STORE(3))                    \
                PO_FIRST_COLUMN(x, c, PO_BEGIN(0, 2), PO_BEGIN(1, 2), PO_BEGIN(2, 2),              \
                                PO_BEGIN(3, 2), PO_SKIP, PO_LOAD(b, 0), PO_STEPS,                  \
                                "add %[at], %[at], %[onward]\n",                                   \
                                "mov %[onward], #16\nmovi %[s33].4s, #0\n", PO_BEGIN(0, 3),        \
                                PO_BEGIN(1, 3), PO_BEGIN(2, 3))

#define PO_SUMS(i)                                                                                 \
    [s##i##0] "+w"(s[i][0]), [s##i##1] "+w"(s[i][1]), [s##i##2] "+w"(s[i][2]),                     \
        [s##i##3] "+w"(s[i][3])

#define ROWS 4
#define AT_ONCE four_rows
#include "i8_panels_of_rows.h"
#define ROWS 3
#define AT_ONCE three_rows
#include "i8_panels_of_rows.h"
#define ROWS 2
#define AT_ONCE two_rows
#include "i8_panels_of_rows.h"

static void multiply_panels(const i8_row *a, long rows, long steps, const i8_value *panels,
                            long apart, long count, int32_t *const c[4]) {
    (rows == 4 ? four_rows : rows == 3 ? three_rows : two_rows)(a, steps, panels, apart, count, c);
}
#else
static void multiply_panels(const i8_row *a, long rows, long steps, const i8_value *panels,
                            long apart, long count, int32_t *const c[4]) {
    const i8_row *const row[4] = {a, a + I8_STEP, a + 2 * I8_STEP, a + 3 * I8_STEP};
    const i8_rows from = {row, 4 * I8_STEP, 0, 1, 0, 0};
    (void)rows;
    for (long j = 0; j < count; j++, panels += apart) {
        i8_sums sums;
        i8_clear(&sums);
        i8_segments_in_order(&sums, row, 1, steps * I8_STEP, from, panels);
        EK_UNROLL
        for (int i = 0; i < 4; i++)
            vi_store(c[i] + j * EK_VL, i8_sum(1, &sums, i, 0));
    }
}
#endif

/* Copies rows in place to a panel of four, of which those that do not exist repeat the last. */
static void copy_rows(const i8_row *const row[4], long k, i8_row *to) {
    const vi flips = vi_splat(A_FLIP ? FLIP_WORD : 0);
    const long left = k % I8_STEP;
    for (long p = 0; p + I8_STEP <= k; p += I8_STEP) {
        EK_UNROLL
        for (int i = 0; i < 4; i++, to += I8_STEP) {
            const vi v = i8_vector(row[i] + p) ^ flips;
            memcpy(to, &v, sizeof v);
        }
    }
    for (int i = 0; i < 4 && left; i++, to += I8_STEP) {
        vi v = {0};
        if (k >= I8_STEP)
            v = last_values(row[i] + k, left);
        else
            ek_copy_short(&v, row[i], left);
        v ^= flips;
        memcpy(to, &v, sizeof v);
    }
}

/* See ek_gemm_panels_at_once. */
static long some_panels(const ek_gemm_job *job, int form, const void *from, long rows,
                        const void *panels, long apart, long count, void *to) {
    const long k = job->k;
    if (count < AT_ONCE_PANELS || rows < AT_ONCE_ROWS(k) || k < 1 || k > AT_ONCE_DEPTH ||
        (form == EK_GEMM_PANEL && rows != 4))
        return 0;
    const size_t wide = i8_panel_of_b(EK_VL, k).wide;
    long narrow = 0;
    for (const char *b = panels; narrow < count; narrow++, b += apart) {
        int32_t is_wide;
        memcpy(&is_wide, b + wide, sizeof is_wide);
        if (is_wide)
            break;
    }
    if (narrow < AT_ONCE_PANELS)
        return 0;
    i8_row copied[4 * AT_ONCE_DEPTH] __attribute__((aligned(64)));
    const i8_row *a = from, *row[4];
    int32_t *c[4];
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        row[i] = a + ek_min(i, rows - 1) * job->a_row;
        c[i] = (int32_t *)to + ek_min(i, rows - 1) * job->c_row;
    }
    if (form == EK_GEMM_ROWS) {
        copy_rows(row, k, copied);
        a = copied;
    }
    multiply_panels(a, rows, i8_padded(k) / I8_STEP, panels, apart, narrow, c);
    return narrow;
}
#endif
