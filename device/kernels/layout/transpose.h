/* Transposes each of many matrices of 4-byte values (transpose_narrow.c: 1 or 2 bytes):
 * channels-first images to channels-last and back. */
#ifndef EK_LAYOUT_TRANSPOSE_H
#define EK_LAYOUT_TRANSPOSE_H
#include "../kernel.h"

typedef struct {
    long rows, columns; /* of a matrix of x */
    const float *x;
    float *y;
    long down, across; /* tiles per matrix */
    long along;        /* in tall matrices, rows whose blocks are transposed before the next
                          columns */
} ek_transpose_args;
#endif
