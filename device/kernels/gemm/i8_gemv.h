/* A GEMV: one row by NV vectors of columns of a row-major B, read in place: four rows of B are
 * interleaved into groups of four in registers, 64 columns at a time. Include after i8_types.h,
 * with EK_GROUPS4. */
#ifndef EK_GEMM_I8_GEMV_H
#define EK_GEMM_I8_GEMV_H

#define ROW_BLOCKS ((NV + 3) / 4)

/* Four values of the row starting at p; zero beyond k. `packed`: as packed by i8_pack.c. */
EK_INLINE int32_t row_group(const i8_row *a, long p, long k, const int packed) {
    uint32_t v = 0;
    if (packed || k - p >= 4) {
        memcpy(&v, a + p, 4);
        v ^= packed && A_FLIP ? (uint32_t)FLIP_WORD : 0;
        return (int32_t)(k - p >= 4 ? v : v & ((1u << 8 * (k - p)) - 1));
    }
    for (long i = k - 1; i >= p; i--)
        v = v << 8 | (uint8_t)a[i];
    return (int32_t)v;
}

/* sums[j] of vector j: exact, no correction needed. If both operands are signed, B is flipped. */
EK_INLINE void multiply_row(const int packed, const ek_gemm_job *job, const i8_row *a,
                            const i8_b *b, vi sums[ROW_BLOCKS * 4]) {
    const long columns = (NV - 1) * EK_VL + job->left;
    vi of_a = {0};
    EK_UNROLL
    for (int j = 0; j < ROW_BLOCKS * 4; j++)
        sums[j] = (vi){0};
    for (long p = 0; p < job->k; p += 4) {
        const vi x = vi_splat(row_group(a, p, job->k, packed));
        if (TYPES == 1)
            of_a = vi_dot4(of_a, vi_splat(0x01010101), x);
        EK_UNROLL
        for (int t = 0; t < ROW_BLOCKS; t++) {
            const long n = t < ROW_BLOCKS - 1 ? 64 : columns - t * 64;
            vi rows[4];
            EK_UNROLL
            for (int i = 0; i < 4; i++) {
                rows[i] =
                    p + i < job->k ? vi_load_bytes(b + (p + i) * job->b_row + t * 64, n) : (vi){0};
                if (TYPES == 1)
                    rows[i] ^= vi_splat(FLIP_WORD);
            }
            vi_groups4(rows);
            EK_UNROLL
            for (int i = 0; i < 4; i++) {
                vi *sum = &sums[t * 4 + i];
                *sum = TYPES == 2 ? vi_dot4(*sum, x, rows[i]) : vi_dot4(*sum, rows[i], x);
            }
        }
    }
    EK_UNROLL
    for (int t = 0; t < ROW_BLOCKS; t++)
        vi_sort_groups4(sums + t * 4);
    if (TYPES == 1) {
        EK_UNROLL
        for (int j = 0; j < NV; j++)
            sums[j] = vi_wrap_add(sums[j], of_a * -128);
    }
}
#endif
