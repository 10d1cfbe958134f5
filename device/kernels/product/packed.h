/* y = scale * a . b for stacks of matrices, both computed; arbitrary row and column strides. */
#ifndef EK_PACKED_H
#define EK_PACKED_H
#include "../kernel.h"

typedef struct {
    long m, k, n;
    long bands, panels;            /* tasks per matrix: bands of EK_PACKED_ROWS rows x panels */
    long a_row;                    /* elements between rows of a, whose columns are contiguous */
    long b_row, b_column;          /* of b */
    long y_row;                    /* like a_row */
    long dim[EK_MATMUL_DIMS];      /* the stack, innermost last */
    long a_stride[EK_MATMUL_DIMS]; /* elements between matrices; 0 broadcasts */
    long b_stride[EK_MATMUL_DIMS];
    long y_stride[EK_MATMUL_DIMS];
    int in_place; /* full panels of b are read in place: they are used too few times to pack */
    float scale;
    const void *a, *b;
    void *y;
} ek_packed_args;
#endif
