/* A real requantization factor, as passed to kernels. */
#ifndef EK_RECURRENT_FACTOR_H
#define EK_RECURRENT_FACTOR_H
#include "../kernel.h"

typedef struct {
    int32_t multiplier, shift; /* multiplier * 2^(shift - 31) */
} ek_factor;
#endif
