/* Products by SpacemiT's matrix unit, for i8_tile.h: vmadot adds the products of four rows of eight
 * bytes and four columns of eight bytes to sums of 4 rows x 4 columns, in two registers. */
#ifndef EK_GEMM_I8_MADOT_H
#define EK_GEMM_I8_MADOT_H

#define I8_BLOCKS ((MR + 3) / 4) /* of four rows; the last may have fewer */

typedef int32_t i8_block __attribute__((vector_size(64)));

typedef struct {
    i8_block of[I8_BLOCKS][2 * NV];
} i8_sums;

EK_INLINE void i8_clear(i8_sums *sums) {
    EK_UNROLL
    for (int i = 0; i < I8_BLOCKS * 2 * NV; i++)
        sums->of[i / (2 * NV)][i % (2 * NV)] = (i8_block){0};
}

/* Adds the products of four rows and eight columns. The unit takes its shape from vtype, which the
 * compiler sets anew after the block. */
EK_INLINE void i8_madot(i8_block sum[2], vi rows, vi first, vi second) {
    __asm__(".option push\n.option arch, +xsmtvdot\n"
            "vsetvli zero, %[bytes], e8, m1, ta, ma\n"
            "smt.vmadot %[s0], %[a], %[b0]\n"
            "smt.vmadot %[s1], %[a], %[b1]\n"
            ".option pop"
            : [s0] "+vr"(sum[0]), [s1] "+vr"(sum[1])
            : [a] "vr"(rows), [b0] "vr"(first), [b1] "vr"(second), [bytes] "r"(32L));
}

typedef int8_t i8_eight __attribute__((vector_size(8)));
typedef int8_t i8_sixteen __attribute__((vector_size(16)));

EK_INLINE i8_eight i8_eight_at(const i8_row *p) {
    i8_eight v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight values each of up to four rows; those of rows beyond `count` are those of the last. */
EK_INLINE vi i8_gathered(const int count, const i8_row *const *row, long p) {
    i8_eight of[4];
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        of[i] = i8_eight_at(row[i < count ? i : count - 1] + p);
#define I8_TO_16 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    const i8_sixteen low = __builtin_shufflevector(of[0], of[1], I8_TO_16);
    const i8_sixteen high = __builtin_shufflevector(of[2], of[3], I8_TO_16);
    return (vi)__builtin_shufflevector(low, high, I8_TO_16, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                       26, 27, 28, 29, 30, 31);
#undef I8_TO_16
}

/* `adjacent`: rows of a packed panel, whose values of a step follow each other. */
EK_INLINE void i8_step(const int mr, const int nv, const int adjacent, i8_sums *sums,
                       const i8_row *const row[MR], long p, const i8_value *w, vi flips) {
    vi b[2 * NV], x[I8_BLOCKS];
    EK_UNROLL
    for (int i = 0; i < (mr + 3) / 4; i++) {
        const int count = mr - 4 * i < 4 ? mr - 4 * i : 4;
        x[i] =
            adjacent && count == 4 ? i8_vector(row[4 * i] + p) : i8_gathered(count, row + 4 * i, p);
        x[i] ^= flips;
    }
    EK_UNROLL
    for (int j = 0; j < 2 * nv; j++)
        b[j] = i8_vector(w + j * 32);
    EK_UNROLL
    for (int i = 0; i < (mr + 3) / 4; i++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++)
            i8_madot(sums->of[i] + 2 * j, x[i], b[2 * j], b[2 * j + 1]);
    }
}

EK_INLINE const i8_value *i8_accumulate(const int mr, const int nv, i8_sums *sums, const i8_rows a,
                                        long length, const i8_value *w) {
    const i8_row *row[MR];
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        row[i] = a.row[i];
    const vi flips = vi_splat(a.flip);
    const int adjacent = mr > 1 && a.step == mr * I8_STEP;
    const long end = length / I8_STEP * a.step;
    for (long p = 0; p < end; p += a.step, w += nv * EK_VL * I8_STEP)
        i8_step(mr, nv, adjacent, sums, row, p, w, flips);
    return w;
}

EK_INLINE vi i8_sum(const int nv, const i8_sums *sums, int i, int j) {
    const i8_block first = sums->of[i / 4][2 * j], second = sums->of[i / 4][2 * j + 1];
    (void)nv;
#define I8_ROW(at)                                                                                 \
    __builtin_shufflevector(first, second, at, at + 1, at + 2, at + 3, at + 16, at + 17, at + 18,  \
                            at + 19)
    return i % 4 == 0 ? I8_ROW(0) : i % 4 == 1 ? I8_ROW(4) : i % 4 == 2 ? I8_ROW(8) : I8_ROW(12);
#undef I8_ROW
}
#endif
