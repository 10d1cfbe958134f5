/* y = scale * a . b for stacks of float matrices, both computed; a has MR rows. Row strides are
 * arbitrary, and rows or columns of b are contiguous. */
#ifndef EK_STREAMED_H
#define EK_STREAMED_H
#include "../kernel.h"

typedef struct {
    long k, n;
    long panels, width;            /* tasks per matrix: panels of `width` columns */
    long a_row, y_row;             /* elements between rows, whose columns are contiguous */
    long b_step;                   /* between columns of b if BY_COLUMNS, otherwise between rows */
    long dim[EK_MATMUL_DIMS];      /* the stack, innermost last */
    long a_stride[EK_MATMUL_DIMS]; /* elements between matrices; 0 broadcasts */
    long b_stride[EK_MATMUL_DIMS];
    long y_stride[EK_MATMUL_DIMS];
    float scale;
    const float *a, *b;
    float *y;
} ek_streamed_args;
#endif
