/* Like transpose.c for values of 1 or 2 bytes: blocks of 8 x 8. Compile-time parameters: NAME, ELEM
 * (uint8_t, uint16_t). */
#include "transpose.h"

#define SIDE 8

typedef ELEM elem;
typedef elem line_t __attribute__((vector_size(SIDE * sizeof(elem))));

/* Interleaves neighbors: single lanes, pairs, groups of four. */
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

/* Interleaving rows i and i + rows / 2 as often as rows can be halved transposes 2, 4 or 8 rows of
 * 8 values; lines of the result are stored `width` apart. */
EK_INLINE void block(const int rows, const elem *x, long step, elem *y, long width) {
    line_t v[SIDE], w[SIDE];
    EK_UNROLL
    for (int i = 0; i < rows; i++)
        memcpy(&v[i], x + i * step, sizeof v[i]);
    EK_UNROLL
    for (int half = rows; half > 1; half /= 2) {
        EK_UNROLL
        for (int i = 0; i < rows / 2; i++) {
            w[2 * i] = LOW(v[i], v[i + rows / 2]);
            w[2 * i + 1] = HIGH(v[i], v[i + rows / 2]);
        }
        memcpy(v, w, rows * sizeof *v);
    }
    EK_UNROLL
    for (int i = 0; i < rows; i++)
        memcpy(y + i * width, &v[i], sizeof v[i]);
}

static void one_by_one(const elem *x, long step, long rows, long columns, elem *y, long width) {
    if (rows > columns) {
        for (long j = 0; j < columns; j++)
            for (long i = 0; i < rows; i++)
                y[j * width + i] = x[i * step + j];
        return;
    }
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++)
            y[j * width + i] = x[i * step + j];
}

/* A matrix of few rows, as of channels that are shuffled. */
EK_INLINE void wide(const int rows, const elem *x, long step, long columns, elem *y) {
    long j = 0;
    for (; j + SIDE <= columns; j += SIDE)
        block(rows, x + j, step, y + j * rows, SIDE);
    one_by_one(x + j, step, rows, columns - j, y + j * rows, rows);
}

/* Three channels of a picture to pixels and back. Compilers recognize both as interleaving. */
static void three_rows(const elem *restrict x, long step, long columns, elem *restrict y) {
    for (long j = 0; j < columns; j++) {
        y[3 * j] = x[j];
        y[3 * j + 1] = x[step + j];
        y[3 * j + 2] = x[2 * step + j];
    }
}
static void three_columns(const elem *restrict x, long rows, elem *restrict y, long width) {
    for (long i = 0; i < rows; i++) {
        y[i] = x[3 * i];
        y[width + i] = x[3 * i + 1];
        y[2 * width + i] = x[3 * i + 2];
    }
}

/* Task: one tile. */
void NAME(const void *args, long begin, long end) {
    const ek_transpose_args *a = args;
    for (long t = begin; t < end; t++) {
        const long at = t / a->across, matrix = at / a->down * a->rows * a->columns;
        const long row = at % a->down * EK_TRANSPOSE_TILE;
        const long column = t % a->across * EK_TRANSPOSE_TILE;
        const long rows = ek_min(EK_TRANSPOSE_TILE, a->rows - row);
        const long columns = ek_min(EK_TRANSPOSE_TILE, a->columns - column);
        const elem *x = (const elem *)(const void *)a->x + matrix + row * a->columns + column;
        elem *y = (elem *)(void *)a->y + matrix + column * a->rows + row;
        if (a->rows == 2) {
            wide(2, x, a->columns, columns, y);
            continue;
        }
        if (a->rows == 4) {
            wide(4, x, a->columns, columns, y);
            continue;
        }
        if (a->rows == 3) {
            three_rows(x, a->columns, columns, y);
            continue;
        }
        if (a->columns == 3) {
            three_columns(x, rows, y, a->rows);
            continue;
        }
        if (rows < SIDE || columns < SIDE) {
            one_by_one(x, a->columns, rows, columns, y, a->rows);
            continue;
        }
        /* The last block of each row and column of blocks overlaps its predecessor. */
        for (long j = 0; j < columns; j += SIDE)
            for (long i = 0; i < rows; i += SIDE) {
                const long up = ek_min(i, rows - SIDE), left = ek_min(j, columns - SIDE);
                block(SIDE, x + up * a->columns + left, a->columns, y + left * a->rows + up,
                      a->rows);
            }
    }
}
