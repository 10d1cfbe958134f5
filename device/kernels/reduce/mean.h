/* Mean (or sum of quantized values) over the middle dimension of [outer, reduced, inner]. */
#ifndef EK_MEAN_H
#define EK_MEAN_H
#include "../kernel.h"

typedef struct {
    long outer, reduced, inner;
    const void *x;
    void *y;
    int x_zero, y_zero, low, high;
    int32_t multiplier;
    int left, right;
    float step, bias; /* for a sum in f32 */
} ek_mean_args;
#endif
