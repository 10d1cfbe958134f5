/* y = scale * a . b for stacks of matrices of floats, both computed, a of MR rows; rows of each lie
 * anywhere, and rows or columns of b follow each other. */
#ifndef EK_STREAMED_H
#define EK_STREAMED_H
#include "../kernel.h"

typedef struct {
    long k, n;
    long panels, width;            /* tasks of a matrix: panels of so many columns */
    long a_row, y_row;             /* elements between rows; their columns follow each other */
    long b_step;                   /* between columns of b where BY_COLUMNS, else between rows */
    long dim[EK_MATMUL_DIMS];      /* the stack, innermost last */
    long a_stride[EK_MATMUL_DIMS]; /* elements between matrices; 0 repeats */
    long b_stride[EK_MATMUL_DIMS];
    long y_stride[EK_MATMUL_DIMS];
    float scale;
    const float *a, *b;
    float *y;
} ek_streamed_args;
#endif
