/* Softmax over the last dimension of [rows, n]. */
#ifndef EK_SOFTMAX_H
#define EK_SOFTMAX_H
#include "../kernel.h"

typedef struct {
    long n;
    const void *x;
    void *y;
    float beta;
    const int32_t *power; /* 8-bit: e^-(scale * beta * d) in Q31 for each difference d, 0 if
                             negligible */
    const int32_t *term;  /* the same in Q19, for the sum */
    const int16_t *power_q15, *inverse; /* 16-bit: e^-(scale * beta * d) for each difference d, and
                                           the endpoints of 512 intervals of 1 / (1 + x) for x from
                                           0 to 1 */
} ek_softmax_args;
#endif
