/* Exact sums of 8-bit products in registers, mr rows x nv vectors of columns: the inner loop over k
 * shared by the GEMM library and conv/i8_conv.c.
 *
 * Before inclusion: EK_SIMD, MR and NV (the largest mr and nv). The ISA determines how products are
 * computed (EK_I8):
 *   DOT4_US / DOT4_SS  bytes in groups of four; operands are flipped (xor 0x80) to the signedness
 *                      that the instruction expects
 *   MMLA               bytes in groups of eight; sums are 2 rows x 2 columns, so a pair of rows
 *                      shares the sums in both its vectors; flipped as for DOT4_SS
 *   MADOT              likewise with sums of 4 rows x 4 columns (i8_madot.h)
 *   MULL16             bytes, sixteen of a row by sixteen of a column: one vector of partial sums
 *                      per row and column, reduced at the end; flipped as for DOT4_SS
 *   PAIR16             rows of 16-bit values by panels of PANEL_TYPE, in pairs
 *   FOUR16             likewise in groups of four with the middle values swapped: one product
 *                      takes the even bytes, one the odd bytes
 *   WIDE16             rows of ROW_TYPE by panels of PANEL_TYPE
 * In the last three, bytes of a panel are widened to 16 bits when they are read, minus the panel's
 * zero point (i8_rows). Define ROW_TYPE and PANEL_TYPE before inclusion; by default they are signed
 * bytes. A panel of B is [k / I8_GROUP][columns][I8_GROUP], with k rounded up to I8_STEP by
 * zeros. */
#ifndef EK_GEMM_I8_TILE_H
#define EK_GEMM_I8_TILE_H
#include "../kernel.h"

#define I8_BYTES                                                                                   \
    (EK_I8 == EK_I8_DOT4_US || EK_I8_SIGNED_DOTS || EK_I8 == EK_I8_MULL16 || EK_I8 == EK_I8_MADOT)
/* The xor mask that converts rows of a type to the bytes the multiplier expects. */
#define I8_FLIP(is_unsigned)                                                                       \
    (I8_BYTES && (EK_I8 == EK_I8_DOT4_US) != (is_unsigned) ? (int32_t)0x80808080 : 0)
/* Which operand of DOT4_US is the unsigned one. */
#ifndef B_UNSIGNED
#define B_UNSIGNED 0
#endif

#ifndef ROW_TYPE
#define ROW_TYPE int8_t
#endif
#ifndef PANEL_TYPE
#define PANEL_TYPE int8_t
#endif
#if I8_BYTES
typedef int8_t i8_value, i8_row; /* elements of panels, of rows */
#elif EK_I8 == EK_I8_WIDE16
typedef PANEL_TYPE i8_value;
typedef ROW_TYPE i8_row;
#else
typedef PANEL_TYPE i8_value;
typedef int16_t i8_row;
#endif
/* Whether rows can be bytes read in place. */
#define I8_IN_PLACE (EK_I8 != EK_I8_PAIR16 && EK_I8 != EK_I8_FOUR16)

#if EK_I8 == EK_I8_MULL16
#define I8_GROUP 16
#define I8_STEP 16
#define I8_SUMS(nv) ((nv) * EK_VL) /* accumulator vectors per row */
#elif EK_I8_SIGNED_DOTS
#define I8_GROUP (EK_I8 == EK_I8_MMLA ? 8 : 4)
#define I8_STEP (4 * EK_VL)
#define I8_SUMS(nv) (nv)
#elif EK_I8 == EK_I8_MADOT
#define I8_GROUP 8
#define I8_STEP 8
#else
#define I8_GROUP (EK_I8 == EK_I8_PAIR16 ? 2 : EK_I8 == EK_I8_WIDE16 ? 1 : 4)
#define I8_STEP I8_GROUP
#define I8_SUMS(nv) (nv)
#endif
/* Position of a group's value i in a panel. */
#define I8_PLACE(i) (EK_I8 == EK_I8_FOUR16 ? ((i) * 2 | (i) / 2) & 3 : (i))

/* RVV: if nv is even, vectors of columns are processed in pairs, in registers of twice the
 * length. */
#if EK_I8 == EK_I8_WIDE16 && EK_VL == 8
#define I8_TWO 1
typedef int32_t i8_two __attribute__((vector_size(8 * EK_VL)));
typedef int16_t i8_two16 __attribute__((vector_size(4 * EK_VL)));
typedef PANEL_TYPE i8_two8 __attribute__((vector_size(2 * EK_VL)));
#else
#define I8_TWO 0
#endif
/* RISC-V without vectors: if nv is even, a register holds the sums of two columns. */
#if EK_I8 == EK_I8_WIDE16 && EK_VL == 1 && defined __riscv && __riscv_xlen == 64
#define I8_PAIRED 1
#else
#define I8_PAIRED 0
#endif
/* Whether a tile processes two steps at a time (i8_step_in_pairs): its sums, a vector of 16-bit
 * products per row, and two of bytes must fit the registers. */
#ifdef __riscv_v_min_vlen
#define I8_IN_PAIRS(mr, nv)                                                                        \
    ((nv) % 2 == 0 && (mr) * ((nv) / 2 * 512 + 256) / __riscv_v_min_vlen + 2 <= 32)
#else
#define I8_IN_PAIRS(mr, nv) 0
#endif

#ifndef EK_IN_ORDER
#define EK_IN_ORDER 0
#endif
/* Whether a tile is scheduled for a core in order (i8_in_order.h). */
#if EK_I8 == EK_I8_MULL16 && EK_IN_ORDER && defined __aarch64__
#define I8_SCHEDULED 1
#else
#define I8_SCHEDULED 0
#endif
#define I8_IN_ORDER(mr, nv) (I8_SCHEDULED && (mr) == 4 && (nv) == 1)

#if EK_I8 != EK_I8_MADOT
/* Rows come in pairs; the last pair may have only one. */
#define I8_ROWS (EK_I8 == EK_I8_MMLA ? (MR + 1) / 2 * 2 : MR)

typedef struct {
    vi of[I8_ROWS][I8_SUMS(NV)];
#if I8_TWO
    i8_two two[MR][(NV + 1) / 2]; /* replaces `of` for even nv */
#elif I8_PAIRED
    uint64_t two[MR][(NV + 1) / 2]; /* likewise */
#endif
} i8_sums;

EK_INLINE void i8_clear(i8_sums *sums) {
    EK_UNROLL
    for (int i = 0; i < I8_ROWS; i++) {
        EK_UNROLL
        for (int j = 0; j < I8_SUMS(NV); j++)
            sums->of[i][j] = (vi){0};
#if I8_TWO || I8_PAIRED
        memset(sums->two[i], 0, sizeof sums->two[i]);
#endif
    }
}
#endif

EK_INLINE vi i8_vector(const void *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Addresses of rows: I8_STEP values of row i at row[i], the next ones `step` further. */
typedef struct {
    const i8_row *const *row;
    long step;     /* I8_STEP for rows in place */
    int32_t flip;  /* xor mask for the bytes */
    int narrow;    /* MULL16, WIDE16 of signed bytes: rows or panel contain no -128 */
    i8_value zero; /* zero point subtracted from the values of a widened panel */
    int half;      /* MULL16: the upper half of a row's last step meets only zeros */
} i8_rows;

#ifndef HALF_STEP
#define HALF_STEP 0 /* 1: a row's last step has at most eight weights other than zero */
#endif

/* I8_PREFETCH_DISTANCE: prefetch distance, in panel values, for products of a single row; 0: none.
 * The host sets it if the weights stream from DRAM. By default only in-order cores prefetch, from
 * any cache level. */
#ifndef I8_PREFETCH_DISTANCE
#if defined __aarch64__ && EK_IN_ORDER
#define I8_PREFETCH_DISTANCE 1024
#else
#define I8_PREFETCH_DISTANCE 0
#endif
#endif
#ifdef INT4 /* values just unpacked */
#define I8_FETCHES 0
#else
#define I8_FETCHES I8_PREFETCH_DISTANCE
#endif

#if EK_I8 == EK_I8_MADOT
#include "i8_madot.h"
#else

/* One step along k: rows at row[i] + p, the panel at w. */
#if EK_I8 == EK_I8_MULL16
#include "i8_halves.h"
#elif EK_I8 == EK_I8_DOT4_SS
EK_INLINE void i8_step(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                       long p, const i8_value *w, vi flips, const i8_rows a) {
    (void)a;
    vi x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = i8_vector(row[i] + p) ^ flips;
    EK_UNROLL
    for (int l = 0; l < EK_VL; l++) {
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            EK_UNROLL
            for (int j = 0; j < nv; j++)
                sums->of[i][j] = vi_dot4(sums->of[i][j], vi_splat(x[i][l]),
                                         i8_vector(w + (l * nv + j) * EK_VL * 4));
        }
    }
}
#elif EK_I8 == EK_I8_MMLA
/* Group l (0 or 1) of rows i and i + 1 of mr; if mr is odd, the last row is used twice. */
EK_INLINE vi i8_pair_of_rows(const int mr, const vi x[MR], const int i, const int l) {
    typedef int64_t groups __attribute__((vector_size(4 * EK_VL)));
    const groups first = (groups)x[i], second = (groups)x[i + 1 < mr ? i + 1 : i];
    return (vi)(l ? __builtin_shufflevector(first, second, 1, 3)
                  : __builtin_shufflevector(first, second, 0, 2));
}

EK_INLINE void i8_step(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                       long p, const i8_value *w, vi flips, const i8_rows a) {
    (void)a;
    vi x[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = i8_vector(row[i] + p) ^ flips;
    EK_UNROLL
    for (int l = 0; l < 2; l++, w += nv * EK_VL * 8) {
        EK_UNROLL
        for (int i = 0; i < mr; i += 2) {
            const vi pair = i8_pair_of_rows(mr, x, i, l);
            EK_UNROLL
            for (int j = 0; j < nv * 2; j++) { /* columns in pairs */
                vi *sum = &sums->of[i + j % 2][j / 2];
                *sum = vi_mmla(*sum, pair, i8_vector(w + j * 16));
            }
        }
    }
}
#elif EK_I8 == EK_I8_WIDE16
#include "i8_wide.h"
#elif !I8_IN_PLACE
#include "i8_pairs.h"
#else
EK_INLINE void i8_step(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                       long p, const i8_value *w, vi flips, const i8_rows a) {
    (void)flips, (void)a;
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        int32_t group;
        memcpy(&group, row[i] + p, sizeof group);
        vi x = vi_splat(group);
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const vi b = i8_vector(w + j * EK_VL * I8_GROUP), sum = sums->of[i][j];
            sums->of[i][j] = B_UNSIGNED ? vi_dot4(sum, b, x) : vi_dot4(sum, x ^ flips, b);
        }
    }
}
#endif

/* A product depends on the previous one in its accumulator, with a latency of four or five cycles.
 * Tiles with few sums therefore split each into this many independent parts. */
#if EK_I8 == EK_I8_DOT4_US
#define I8_PARTS(mr, nv) ((mr) * (nv) <= 2 ? 4 : (mr) * (nv) <= 4 ? 2 : 1)
#define I8_MOST_PARTS 4
EK_INLINE long i8_in_parts(const int mr, const int nv, i8_sums *sums, const i8_row *const row[MR],
                           const i8_rows a, long end, const i8_value **panel, vi flips) {
    const i8_value *w = *panel;
    const int parts = I8_PARTS(mr, nv);
    const long values = nv * EK_VL * I8_STEP;
    i8_sums part[I8_MOST_PARTS];
    long p = 0;
    if (end < 2 * parts * a.step)
        return p;
    EK_UNROLL
    for (int c = 1; c < parts; c++)
        i8_clear(&part[c]);
    for (; p + parts * a.step <= end; p += parts * a.step, w += parts * values) {
        i8_step(mr, nv, sums, row, p, w, flips, a);
        EK_UNROLL
        for (int c = 1; c < parts; c++)
            i8_step(mr, nv, &part[c], row, p + c * a.step, w + c * values, flips, a);
    }
    EK_UNROLL
    for (int c = 1; c < parts; c++) {
        EK_UNROLL
        for (int i = 0; i < mr * nv; i++)
            sums->of[i / nv][i % nv] =
                vi_wrap_add(sums->of[i / nv][i % nv], part[c].of[i / nv][i % nv]);
    }
    *panel = w;
    return p;
}
#endif

/* A single row reads each weight once, so it is memory-bound. */
EK_INLINE void i8_prefetch(const int mr, const int nv, const i8_value *w) {
    if (mr > 1 || !I8_FETCHES)
        return;
    EK_UNROLL
    for (int at = 0; at < nv * EK_VL * I8_STEP; at += 64)
        __builtin_prefetch(w + I8_PREFETCH_DISTANCE + at);
}

/* sums += rows x panel over `length` values of k, a multiple of I8_STEP; returns the end of the
 * panel. `a` is constant except for its pointers. */
EK_INLINE const i8_value *i8_accumulate(const int mr, const int nv, i8_sums *sums, const i8_rows a,
                                        long length, const i8_value *w) {
    const i8_row *row[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        row[i] = a.row[i];
    vi flips = vi_splat(a.flip);
    if (a.flip)
        EK_OPAQUE(flips); /* otherwise the compiler flips scalars, which costs a register transfer
                             each */
    const long end = length / I8_STEP * a.step;
    long p = 0;
#if I8_SCHEDULED && MR == 4
    if (I8_IN_ORDER(mr, nv))
        return end ? i8_segments_in_order(sums, a.row, 1, length, a, w) : w;
#endif
#if EK_I8 == EK_I8_WIDE16
    /* Unrolled by four, otherwise the loop counter costs as much as the loads. */
#if I8_TWO
    for (; a.narrow && I8_IN_PAIRS(mr, nv) && p + 4 * a.step <= end; p += 4 * a.step) {
        EK_UNROLL
        for (int u = 0; u < 4; u += 2, w += 2 * nv * EK_VL) {
            i8_step_in_pairs(mr, nv, sums, row, p + u * a.step, a.step, w);
            EK_IN_ORDER_HERE; /* otherwise all loads come first, and products wait for them */
        }
    }
#elif I8_PAIRED
    for (; nv % 2 == 0 && p + 4 * a.step <= end; p += 4 * a.step, w += 4 * nv)
        i8_steps_paired(mr, nv / 2, sums, row, p, a.step, w, a.zero);
#endif
    for (; p + 4 * a.step <= end; p += 4 * a.step) {
        EK_UNROLL
        for (int u = 0; u < 4; u++, w += nv * EK_VL) {
            i8_step(mr, nv, sums, row, p + u * a.step, w, flips, a);
            if (EK_VL == 1 && mr > 1)
                EK_IN_ORDER_HERE; /* otherwise all products come first and are spilled */
        }
    }
#elif EK_I8 == EK_I8_DOT4_US
    if (I8_PARTS(mr, nv) > 1)
        p = i8_in_parts(mr, nv, sums, row, a, end, &w, flips);
#endif
    for (; p < end - (a.half ? a.step : 0); p += a.step, w += nv * EK_VL * I8_STEP) {
        i8_prefetch(mr, nv, w);
        i8_step(mr, nv, sums, row, p, w, flips, a);
    }
#if EK_I8 == EK_I8_MULL16
    if (a.half && p < end) {
        i8_half_step(mr, nv, sums, row, p, w, flips);
        w += nv * EK_VL * I8_STEP;
    }
#endif
    return w;
}

/* The sum of row i and vector j out of nv. */
EK_INLINE vi i8_sum(const int nv, const i8_sums *sums, int i, int j) {
#if EK_I8 == EK_I8_MULL16
    const vi *part = sums->of[i] + j * EK_VL;
    (void)nv;
    return vi_sum4(part[0], part[1], part[2], part[3]);
#elif EK_I8 == EK_I8_MMLA
    const vi first = sums->of[i / 2 * 2][j], second = sums->of[i / 2 * 2 + 1][j];
    (void)nv;
    return i % 2 ? __builtin_shufflevector(first, second, 2, 3, 6, 7)
                 : __builtin_shufflevector(first, second, 0, 1, 4, 5);
#else
#if I8_TWO
    const i8_two two = sums->two[i][j / 2];
    if (nv % 2 == 0)
        return j % 2 ? __builtin_shufflevector(two, two, 8, 9, 10, 11, 12, 13, 14, 15)
                     : __builtin_shufflevector(two, two, 0, 1, 2, 3, 4, 5, 6, 7);
#elif I8_PAIRED
    const uint64_t two = sums->two[i][j / 2];
    const int32_t first = (int32_t)two;
    if (nv % 2 == 0)
        return j % 2 ? (int32_t)((two - (uint64_t)(int64_t)first) >> 32) : first;
#endif
    (void)nv;
    return sums->of[i][j];
#endif
}
#endif
#include "i8_narrow.h"
#endif
