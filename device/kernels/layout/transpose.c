/* Transposes 4-byte matrices. Compile-time parameter: NAME.
 *
 * Channels are often a multiple of a page apart, so that lines of many channels map to the same
 * cache set. Hence pixels to channels go a few channels at a time, in long runs; channels to pixels
 * read one line of a few channels and write part of each pixel. */
#include "transpose.h"
#include "../gemm/transpose.h"

#define LINE 16   /* values per cache line */
#define PAGE 1024 /* values; lines this far apart map to the same set in most L1 caches */
#define FEW 4     /* rows and columns of a block */

static void small_blocks(const ek_transpose_args *a, const float *x, float *y, long rows,
                         long columns) {
    const long step = a->columns, width = a->rows;
    const long along = a->rows > a->columns ? a->along : LINE;
    for (long first = 0; first < rows; first += along) {
        const long end = ek_min(first + along, rows);
        for (long j = 0; j < columns; j += FEW) {
            const long few = ek_min(FEW, columns - j);
            long i = first;
            if (few == FEW)
                for (; i + FEW <= end; i += FEW)
                    ek_transpose4(x + i * step + j, step, y + j * width + i, width);
            if (i < end)
                ek_transpose(x + i * step + j, step, end - i, few, y + j * width + i, width);
        }
    }
}

#ifdef EK_TRANSPOSES
/* Full vectors of y, four output lines at a time: for outputs whose lines share a cache set. */
EK_INLINE void long_lines(const ek_transpose_args *a, const float *x, float *y, long rows,
                          long columns) {
    for (long j = 0; j < columns; j += FEW)
        for (long i = 0; i < rows; i += EK_VL) {
            vf v[FEW];
            vf_transpose_rows4(x + i * a->columns + j, a->columns, v);
            EK_UNROLL for (int r = 0; r < FEW; r++) vf_store(y + (j + r) * a->rows + i, v[r]);
        }
}

/* Full vectors of both x and y. */
EK_INLINE void squares(const ek_transpose_args *a, const float *x, float *y, long rows,
                       long columns) {
    for (long j = 0; j < columns; j += EK_VL)
        for (long i = 0; i < rows; i += EK_VL) {
            vf v[EK_VL];
            EK_UNROLL for (int r = 0; r < EK_VL; r++) v[r] = vf_load(x + (i + r) * a->columns + j);
            vf_transpose(v);
            EK_UNROLL for (int r = 0; r < EK_VL; r++) vf_store(y + (j + r) * a->rows + i, v[r]);
        }
}

static void tile(const ek_transpose_args *a, const float *x, float *y, long rows, long columns) {
    const int crowded = a->rows % PAGE == 0 || columns < EK_VL;
    const long wide = crowded ? FEW : EK_VL;
    const long down = rows / EK_VL * EK_VL, across = columns / wide * wide;
    if (crowded)
        long_lines(a, x, y, down, across);
    else
        squares(a, x, y, down, across);
    small_blocks(a, x + across, y + across * a->rows, down, columns - across);
    small_blocks(a, x + down * a->columns, y + down, rows - down, columns);
}
#else
#define tile small_blocks
#endif

/* Task: one tile. */
void NAME(const void *args, long begin, long end) {
    const ek_transpose_args *a = args;
    for (long t = begin; t < end; t++) {
        long at = t / a->across, matrix = at / a->down * a->rows * a->columns;
        long row = at % a->down * EK_TRANSPOSE_TILE, column = t % a->across * EK_TRANSPOSE_TILE;
        if (a->rows < FEW || a->columns < FEW) { /* a single tile */
            ek_transpose(a->x + matrix, a->columns, a->rows, a->columns, a->y + matrix, a->rows);
            continue;
        }
        long rows = ek_min(EK_TRANSPOSE_TILE, a->rows - row);
        long columns = ek_min(EK_TRANSPOSE_TILE, a->columns - column);
        tile(a, a->x + matrix + row * a->columns + column, a->y + matrix + column * a->rows + row,
             rows, columns);
    }
}
