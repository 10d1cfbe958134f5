/* Products of two computed 8-bit matrices, as in attention, on the (emulated) NNA. */
#ifndef EK_NNA_PRODUCT_H
#define EK_NNA_PRODUCT_H
#include "../kernel.h"
#include "nna.h"

/* The operand used as weights. COLUMNS_OF_B: columns of b, nine groups of 32 values at a time, with
 * rows of a as points. VALUES_OF_A: values of a, nine at a time on the diagonal, with columns of b
 * as channels, as in the patent. */
enum { EK_NNA_COLUMNS_OF_B, EK_NNA_VALUES_OF_A };

typedef struct {
    ek_nna_chip chip;
    int form;
    long m, k, n;
    long matrices, dim[EK_MATMUL_DIMS]; /* the stack, as in ek_matmul_args */
    long a_stride[EK_MATMUL_DIMS], b_stride[EK_MATMUL_DIMS];
    const int8_t *a, *b;
    int a_zero, b_zero, y_zero;
    int multiplier, left, right;
    int8_t *features; /* [k / 32][m][32], or [n / 32][k][32] followed by the rest of b, [k][n %
                         32] */
    int8_t *weights;  /* [n / 32][k / 32][32][32]; unused with VALUES_OF_A */
    int32_t *sums;    /* [n / 32][m][32], or [m][n] */
    int32_t *columns; /* sums of b's columns, padded to groups of 32 */
    int8_t *y;
} ek_nna_product_args;
#endif
