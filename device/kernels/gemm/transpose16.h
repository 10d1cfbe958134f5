/* Transposes matrices of 32-bit values 16 x 16 at a time, in full vectors, for storing transposed
 * tiles. Include after the header of an ISA with EK_TRANSPOSES. */
#ifndef EK_GEMM_TRANSPOSE16_H
#define EK_GEMM_TRANSPOSE16_H

/* Transposes 16 rows, of which `rows` exist, into `columns` runs of that length. */
EK_INLINE void transpose16_block(const float *from, long width, const long rows, long columns,
                                 float *to, long step) {
    const uint16_t there = (uint16_t)((1u << rows) - 1);
    vf v[16];
    EK_UNROLL
    for (int i = 0; i < 16; i++)
        v[i] = i < rows ? vf_load(from + i * width) : (vf){0};
    vf_transpose(v);
    EK_UNROLL
    for (int j = 0; j < 16; j++)
        if (j < columns)
            vf_store_masked(to + j * step, v[j], there);
}

/* Stores the quarters of four vectors as runs of 16: first quarters, second quarters, and so on;
 * only `count` values of each are stored. */
EK_INLINE void store_quarters(const vf a, const vf b, const vf c, const vf d, float *to, long step,
                              long count) {
    vi v[4] = {(vi)a, (vi)b, (vi)c, (vi)d};
    vi_sort_groups4(v);
    EK_UNROLL
    for (int q = 0; q < 4; q++) {
        const long left = count - q * step;
        if (left >= 16)
            vf_store(to + q * step, (vf)v[q]);
        else if (left > 0)
            vf_store_n(to + q * step, (vf)v[q], left);
    }
}

/* Transposes 4 or 8 rows into adjacent runs of that length. */
EK_INLINE void transpose16_narrow(const float *from, long step, const long rows, long columns,
                                  float *to) {
    for (long j = 0; j < columns; j += 16, to += 16 * rows) {
        vf v[8];
        EK_UNROLL
        for (int i = 0; i < rows; i++)
            v[i] = vf_load(from + i * step + j);
        vf_transpose_quarters(v);
        if (rows == 4) {
            store_quarters(v[0], v[1], v[2], v[3], to, 16, (columns - j) * 4);
            continue;
        }
        vf_transpose_quarters(v + 4);
        store_quarters(v[0], v[4], v[1], v[5], to, 32, (columns - j) * 8);
        store_quarters(v[2], v[6], v[3], v[7], to + 16, 32, (columns - j) * 8 - 16);
    }
}

/* Like ek_transpose, for rows of full vectors. */
static void transpose16(const float *from, long step, long rows, long columns, float *to,
                        long width) {
    if (rows == width && rows == 4)
        return transpose16_narrow(from, step, 4, columns, to);
    if (rows == width && rows == 8)
        return transpose16_narrow(from, step, 8, columns, to);
    for (long j = 0; j < columns; j += 16)
        for (long i = 0; i < rows; i += 16)
            transpose16_block(from + i * step + j, step, ek_min(rows - i, 16),
                              ek_min(columns - j, 16), to + j * width + i, width);
}
#endif
