/* One direction of a recurrent layer, all time steps. */
#ifndef EK_RECURRENT_LAYER_H
#define EK_RECURRENT_LAYER_H
#include "../kernel.h"

typedef struct {
    long steps, batch, hidden;
    int backwards;
    const float *x;         /* [steps][batch][gates][hidden]: what inputs add to the gates */
    const float *weights;   /* panels (see product): of all gates; GRU: of those below `inner` */
    const float *inner;     /* GRU: panels of the hidden gate, if it is reset first */
    const float *terms;     /* LSTM: peepholes [3][hidden]; GRU: bias [hidden]; or NULL */
    const int32_t *lengths; /* [batch], or NULL */
    const float *hidden_before, *cell_before;
    float *y;            /* [steps][batch][hidden] */
    float *state, *cell; /* [batch][hidden]: after each step, so at the end the results */
    float *scratch;      /* `row` floats for each of the batch */
    long row;
    float clip, cell_clip;             /* ranges of functions' operands, of the cell */
    float gate[2], squash[2], last[2]; /* parameters of functions */
} ek_recurrent_args;
#endif
