/* Arguments of one direction of a recurrent layer over all time steps. Elements behind a void * are
 * f32, or f16 with EK_HALF. */
#ifndef EK_RECURRENT_LAYER_H
#define EK_RECURRENT_LAYER_H
#include "../kernel.h"

typedef struct {
    long steps, batch, hidden;
    int backwards;
    const void *x;       /* [steps][batch][gates][hidden]: the inputs' contribution to the
                            gates */
    const void *weights; /* panels (see layer.c) of all gates; GRU: of those before `inner` */
    const void *inner;   /* GRU: panels of the hidden gate if it is reset first */
    const float *scales, *inner_scales; /* of columns of s8 weights */
    const float *terms;     /* LSTM: peepholes [3][hidden]; GRU: bias [hidden]; or NULL */
    const int32_t *lengths; /* [batch], or NULL */
    const float *hidden_before, *cell_before;
    void *y;             /* [steps][batch][hidden] */
    float *state, *cell; /* [batch][hidden]: after each step, hence finally the results */
    void *scratch;       /* `row` elements per batch entry */
    long row;
    float clip, cell_clip;             /* clipping limits of the functions' inputs, of the cell */
    float gate[2], squash[2], last[2]; /* parameters of the functions */
} ek_recurrent_args;
#endif
