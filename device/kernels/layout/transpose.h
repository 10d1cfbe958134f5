/* Many matrices of 4-byte or 2-byte values, each transposed: channel-major images and back. */
#ifndef EK_LAYOUT_TRANSPOSE_H
#define EK_LAYOUT_TRANSPOSE_H
#include "../kernel.h"

typedef struct {
    long rows, columns; /* of a matrix of x */
    const void *x;
    void *y;
    long down, across; /* tiles of a matrix */
} ek_transpose_args;
#endif
