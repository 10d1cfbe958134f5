/* y = a . b for stacks of row-major matrices, both computed. */
#ifndef EK_MATMUL_H
#define EK_MATMUL_H
#include "../kernel.h"

typedef struct {
    long m, k, n, blocks;          /* blocks: ceil(m / MR), tasks per matrix */
    long dim[EK_MATMUL_DIMS];      /* the stack, innermost last */
    long a_stride[EK_MATMUL_DIMS]; /* elements between matrices; 0 broadcasts */
    long b_stride[EK_MATMUL_DIMS];
    const void *a, *b;
    /* quantized: zero points, and the factor to units of y: multiplier * 2^(left - right - 31), for
     * s16 multiplier * 2^-right */
    int a_zero, b_zero, y_zero;
    int multiplier, left, right;
    void *y;
} ek_matmul_args;
#endif
