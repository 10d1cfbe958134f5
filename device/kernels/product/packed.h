/* y = scale * a . b for stacks of matrices, both computed; rows and columns may lie anywhere. */
#ifndef EK_PACKED_H
#define EK_PACKED_H
#include "../kernel.h"

typedef struct {
    long m, k, n;
    long bands, panels;            /* tasks of a matrix: bands of EK_PACKED_ROWS rows x panels */
    long a_row;                    /* elements between rows of a; its columns follow each other */
    long b_row, b_column;          /* of b */
    long y_row;                    /* as a_row */
    long dim[EK_MATMUL_DIMS];      /* the stack, innermost last */
    long a_stride[EK_MATMUL_DIMS]; /* elements between matrices; 0 repeats */
    long b_stride[EK_MATMUL_DIMS];
    long y_stride[EK_MATMUL_DIMS];
    int in_place; /* whole panels of b are read where they lie: they are used too few times */
    float scale;
    const void *a, *b;
    void *y;
} ek_packed_args;
#endif
