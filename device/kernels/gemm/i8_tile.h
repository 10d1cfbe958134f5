/* Exact sums of 8-bit products in registers, mr rows x nv vectors of columns: the inner loop over
 * k that the GEMM library and conv/i8_conv.c share.
 *
 * Before inclusion: EK_SIMD, MR and NV (the largest mr and nv). How products are made depends on
 * the ISA (EK_I8):
 *   DOT4_US / DOT4_SS  bytes in groups of four; operands are flipped (xor 0x80) to the signedness
 *                      that the instruction wants
 *   MULL16             bytes, sixteen of a row by sixteen of a column: a vector of partial sums
 *                      per row and column, summed up at the end; flipped as for DOT4_SS
 *   PAIR16 / WIDE16    16-bit values
 * A panel of B is [k / I8_GROUP][columns][I8_GROUP], k rounded up to I8_STEP with zeros. */
#ifndef EK_GEMM_I8_TILE_H
#define EK_GEMM_I8_TILE_H
#include "../kernel.h"

#define I8_BYTES (EK_I8 == EK_I8_DOT4_US || EK_I8 == EK_I8_DOT4_SS || EK_I8 == EK_I8_MULL16)
/* What turns rows of a type into the bytes that the products take. */
#define I8_FLIP(is_unsigned)                                                                       \
    (I8_BYTES && (EK_I8 == EK_I8_DOT4_US) != (is_unsigned) ? (int32_t)0x80808080 : 0)
/* Which operand DOT4_US takes as the unsigned one. */
#ifndef B_UNSIGNED
#define B_UNSIGNED 0
#endif

#if I8_BYTES
typedef int8_t i8_value; /* of rows and panels, as products take them */
#else
typedef int16_t i8_value;
#endif

#if EK_I8 == EK_I8_MULL16
#define I8_GROUP 16
#define I8_STEP 16
#define I8_SUMS(nv) ((nv) * EK_VL) /* vectors of sums per row */
#elif EK_I8 == EK_I8_DOT4_SS
#define I8_GROUP 4
#define I8_STEP (4 * EK_VL)
#define I8_SUMS(nv) (nv)
#else
#define I8_GROUP (I8_BYTES ? 4 : EK_I8 == EK_I8_PAIR16 ? 2 : 1)
#define I8_STEP I8_GROUP
#define I8_SUMS(nv) (nv)
#endif

typedef vi i8_sums[MR][I8_SUMS(NV)];

EK_INLINE void i8_clear(const int mr, const int nv, i8_sums sums) {
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < I8_SUMS(nv); j++)
            sums[i][j] = (vi){0};
    }
}

EK_INLINE vi i8_vector(const void *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Where rows are read: I8_STEP values of row i at row[i], the next a step further. */
typedef struct {
    const i8_value *const *row;
    long step;    /* I8_STEP for rows of memory */
    int32_t flip; /* what the bytes are xor-ed with */
    int narrow;   /* MULL16: the rows or the panel are free of -128 */
} i8_rows;

/* sums += rows by a panel, over `length` values of k, a multiple of I8_STEP; returns the end of
 * the panel. `a` is a constant but for its pointers. */
EK_INLINE const i8_value *i8_accumulate(const int mr, const int nv, i8_sums sums, const i8_rows a,
                                        long length, const i8_value *w) {
    const int columns = nv * EK_VL;
    const i8_value *row[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        row[i] = a.row[i];
#if I8_BYTES
    vi flips = vi_splat(a.flip);
    EK_OPAQUE(flips); /* or the compiler flips in scalar registers, which costs a transfer each */
#endif
    for (long p = 0, end = length / I8_STEP * a.step; p < end;
         p += a.step, w += columns * I8_STEP) {
#if EK_I8 == EK_I8_MULL16
        vi x[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            x[i] = i8_vector(row[i] + p) ^ flips;
        EK_UNROLL
        for (int j = 0; j < columns; j++) {
            const vi b = i8_vector(w + j * 16);
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                sums[i][j] = vi_mull16(sums[i][j], x[i], b, a.narrow);
        }
#elif EK_I8 == EK_I8_DOT4_SS
        vi x[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            x[i] = i8_vector(row[i] + p) ^ flips;
        EK_UNROLL
        for (int l = 0; l < EK_VL; l++) {
            EK_UNROLL
            for (int i = 0; i < mr; i++) {
                const vi group = vi_splat(x[i][l]);
                EK_UNROLL
                for (int j = 0; j < nv; j++)
                    sums[i][j] =
                        vi_dot4(sums[i][j], group, i8_vector(w + (l * columns + j * EK_VL) * 4));
            }
        }
#elif EK_I8 == EK_I8_WIDE16
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                vs b;
                memcpy(&b, w + j * EK_VL, sizeof b);
                const vi product = vcast(b, vi) * vcast(row[i][p] - (vs){0}, vi);
                sums[i][j] = vi_wrap_add(sums[i][j], product);
            }
        }
#else
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            int32_t group;
            memcpy(&group, row[i] + p, sizeof group);
            vi x = vi_splat(group);
#if EK_I8 == EK_I8_DOT4_US
            x ^= flips;
#endif
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                const vi b = i8_vector(w + j * EK_VL * I8_GROUP);
#if EK_I8 == EK_I8_DOT4_US
                sums[i][j] = B_UNSIGNED ? vi_dot4(sums[i][j], b, x) : vi_dot4(sums[i][j], x, b);
#else
                sums[i][j] = vi_pair16(sums[i][j], x, b);
#endif
            }
        }
#endif
    }
    return w;
}

/* The sum of row i and vector j of columns. */
EK_INLINE vi i8_sum(i8_sums sums, int i, int j) {
#if EK_I8 == EK_I8_MULL16
    const vi *part = sums[i] + j * EK_VL;
    return vi_sum4(part[0], part[1], part[2], part[3]);
#else
    return sums[i][j];
#endif
}
#endif
