/* y = op(a, b) with NumPy's broadcasting, over rows of a collapsed shape. */
#ifndef EK_BINARY_H
#define EK_BINARY_H
#include "../kernel.h"

typedef struct {
    long dim[EK_BINARY_DIMS];      /* collapsed shape of y, innermost last */
    long a_stride[EK_BINARY_DIMS]; /* in elements; 0 broadcasts. Innermost: 0 or 1 */
    long b_stride[EK_BINARY_DIMS];
    long chunks; /* ceil(dim[last] / EK_BINARY_CHUNK) */
    const void *a, *b;
    void *y;
    float low_f32, high_f32;
    /* 8-bit: real = scale * (stored - zero). add: both operands are rescaled to a common scale
     * (shift, then multiplier and right shift); mul: the product is requantized. */
    int a_zero, b_zero, y_zero, low, high;
    int shift;
    int32_t a_multiplier, b_multiplier, y_multiplier;
    int a_left, a_right, b_left, b_right, y_left, y_right;
    /* OP_EVEN, add: (a - a_zero) * a_scale + ((b - b_zero) * b_scale + addend) + y_zero; mul:
     * (a - a_zero) * (b - b_zero) * a_scale + addend + y_zero */
    float a_scale, b_scale, addend;
} ek_binary_args;
#endif
