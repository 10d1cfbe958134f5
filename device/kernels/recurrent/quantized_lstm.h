/* Arguments of an 8-bit quantized LSTM over all time steps, as in TFLite. */
#ifndef EK_QUANTIZED_LSTM_H
#define EK_QUANTIZED_LSTM_H
#include "factor.h"

typedef struct {
    long steps, batch, size, cells, out;
    int gates;                      /* [input,] forget, cell, output */
    const int8_t *x;                /* [steps][batch][size] */
    const int8_t *weights;          /* [gates][cells][size] */
    const int8_t *recurrent;        /* [gates][cells][out] */
    const int32_t *bias;            /* for x's sums, then the state's: [2][gates][cells] */
    const int16_t *peepholes;       /* [gates - 1][cells], or NULL */
    const int8_t *projection;       /* [out][cells], or NULL */
    const int32_t *projection_bias; /* [out] */
    const int16_t *norms;           /* weights of gate normalization [gates][cells], or NULL */
    const int32_t *norm_bias;       /* [gates][cells] */
    const int8_t *hidden_before;    /* [batch][out] */
    const int16_t *cell_before;     /* [batch][cells] */
    int8_t *y;                      /* [steps][batch][out] */
    int8_t *hidden;                 /* like hidden_before, cell_before; after each step */
    int16_t *cell;
    int16_t *sums; /* scratch: [batch][gates][cells] */
    int8_t *inner; /* scratch: [batch][cells], before the projection */
    ek_factor of_input[4], of_state[4], of_cell[3], of_norm[4], to_hidden, to_output;
    int32_t guards[4]; /* gate normalization: replace a variance of 0 */
    int hidden_zero, zero;
    int cell_clip, clip; /* 0: no clipping */
} ek_quantized_lstm_args;
#endif
