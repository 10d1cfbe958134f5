/* Rows of f32 rounded to the values that 8-bit codes of their own range stand for. */
#ifndef EK_FAKE_QUANTIZE_H
#define EK_FAKE_QUANTIZE_H
#include "../kernel.h"

typedef struct {
    long n; /* of a row */
    const float *x;
    float *y;
} ek_fake_quantize_args;
#endif
