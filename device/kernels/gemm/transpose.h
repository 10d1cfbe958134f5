/* Transposes blocks of 4 x 4 32-bit values of any type, on every core. */
#ifndef EK_GEMM_TRANSPOSE_H
#define EK_GEMM_TRANSPOSE_H
#include <string.h>

typedef float ek_f32x4 __attribute__((vector_size(16)));

/* The type of p says its alignment: some cores load unaligned words byte by byte. */
static inline ek_f32x4 ek_load4(const float *p) {
    ek_f32x4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* from[i][p], rows `step` apart, becomes to[p][i], rows `width` apart; i and p below 4. */
static inline __attribute__((always_inline)) void ek_transpose4(const float *from, long step,
                                                                float *to, long width) {
    ek_f32x4 a = ek_load4(from), b = ek_load4(from + step);
    ek_f32x4 c = ek_load4(from + 2 * step), d = ek_load4(from + 3 * step);
    ek_f32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    ek_f32x4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    ek_f32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    ek_f32x4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    ek_f32x4 rows[4] = {
        __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
        __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
        __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
        __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7),
    };
    for (int i = 0; i < 4; i++)
        memcpy(to + i * width, &rows[i], sizeof rows[i]);
}

/* Interleaves a few long rows (channels of an image) into short ones (its pixels). `rows` is a
 * constant, so that compilers generate shuffles. */
static inline __attribute__((always_inline)) void ek_interleave(const float *restrict from,
                                                                long step, const long rows,
                                                                long columns, float *restrict to) {
    for (long j = 0; j < columns; j++)
        for (long i = 0; i < rows; i++)
            to[j * rows + i] = from[i * step + j];
}

/* The inverse: `columns`, the width of a row, is a constant. */
static inline __attribute__((always_inline)) void ek_deinterleave(const float *restrict from,
                                                                  long rows, const long columns,
                                                                  float *restrict to, long width) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++)
            to[j * width + i] = from[i * columns + j];
}

/* Transposes a matrix of `rows` x `columns`; rows are contiguous on both sides. */
static inline void ek_transpose(const float *from, long step, long rows, long columns, float *to,
                                long width) {
    if (width == rows && rows == 2)
        return ek_interleave(from, step, 2, columns, to);
    if (width == rows && rows == 3)
        return ek_interleave(from, step, 3, columns, to);
    if (step == columns && columns == 2)
        return ek_deinterleave(from, rows, 2, to, width);
    if (step == columns && columns == 3)
        return ek_deinterleave(from, rows, 3, to, width);
    if (rows < 4 || columns < 4) {
        for (long i = 0; i < rows; i++)
            for (long j = 0; j < columns; j++)
                memcpy(to + j * width + i, from + i * step + j, sizeof *to);
        return;
    }
    /* The last block of each row and column of blocks overlaps its predecessor. */
    for (long i = 0, next; i < rows; i = next) {
        next = i + 4;
        if (next > rows)
            i = rows - 4;
        for (long j = 0, right; j < columns; j = right) {
            right = j + 4;
            if (right > columns)
                j = columns - 4;
            ek_transpose4(from + i * step + j, step, to + j * width + i, width);
        }
    }
}
#endif
