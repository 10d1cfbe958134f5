/* Arguments of an 8-bit quantized SVDF (filters over time), as in TFLite. */
#ifndef EK_QUANTIZED_SVDF_H
#define EK_QUANTIZED_SVDF_H
#include "factor.h"

typedef struct {
    long size, units, rank, frames;
    const int8_t *x;       /* [batch][size] */
    const int8_t *weights; /* [units][rank][size] */
    const int32_t *offset; /* [units][rank] */
    const int16_t *times;  /* [units][rank][frames] */
    const int32_t *bias;   /* [units] */
    const int16_t *before; /* [batch][units][rank][frames] */
    int8_t *y;             /* [batch][units] */
    int16_t *state;        /* like `before` */
    ek_factor of_input, to_output;
    int zero;
} ek_quantized_svdf_args;
#endif
