/* Many matrices of 4-byte values (transpose2.c: of 2-byte ones), each transposed: channel-major
 * images and back. */
#ifndef EK_LAYOUT_TRANSPOSE_H
#define EK_LAYOUT_TRANSPOSE_H
#include "../kernel.h"

typedef struct {
    long rows, columns; /* of a matrix of x */
    const float *x;
    float *y;
    long down, across; /* tiles of a matrix */
    long along;        /* rows of a high matrix whose blocks are made before the next columns */
} ek_transpose_args;
#endif
