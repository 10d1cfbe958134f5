/* Matrices of 32-bit values turned by whole vectors, 16 x 16 at a time: what a tile with its
 * vectors along m takes to be stored. After the header of an ISA with EK_TRANSPOSES. */
#ifndef EK_GEMM_TURN_H
#define EK_GEMM_TURN_H

/* 16 rows, of which `rows` are there, become `columns` runs of so many. */
EK_INLINE void turn_block(const float *from, long width, const long rows, long columns, float *to,
                          long step) {
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

/* As ek_transpose, from rows of whole vectors. */
static void turn(const float *from, long step, long rows, long columns, float *to, long width) {
    for (long j = 0; j < columns; j += 16)
        for (long i = 0; i < rows; i += 16)
            turn_block(from + i * step + j, step, ek_min(rows - i, 16), ek_min(columns - j, 16),
                       to + j * width + i, width);
}
#endif
