/* y = clamp((a * a_factor + b * b_factor + addend) >> shift) of 8-bit codes of one shape. */
#ifndef EK_LINEAR_SUM_H
#define EK_LINEAR_SUM_H
#include "../kernel.h"

typedef struct {
    long n;
    const void *a, *b;
    void *y;
    int a_high, a_low, b_high, b_low; /* parts of the factors, each an s16 */
    int addend_high, addend_low;
    int shift; /* of the upper parts: what is left when the lower bits are off */
    int low, high;
} ek_linear_sum_args;
#endif
