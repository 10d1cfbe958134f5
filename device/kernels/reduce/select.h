/* Arguments of non-maximum suppression: y[b, c, :] selects from an order of b's boxes. */
#ifndef EK_SELECT_H
#define EK_SELECT_H
#include "../kernel.h"

typedef struct {
    long n, classes, limit; /* boxes; orders per batch entry; maximum number of boxes kept */
    float overlap, least;
    const float *boxes; /* [b, n, 4] */
    const void *order;  /* [b, classes, n] */
    const float *scores;
    void *y; /* [b, classes, limit] */
} ek_select_args;
#endif
