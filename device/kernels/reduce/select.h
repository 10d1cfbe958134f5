/* Which of overlapping boxes are kept: y[b, c, :] of an order of the boxes of b. */
#ifndef EK_SELECT_H
#define EK_SELECT_H
#include "../kernel.h"

typedef struct {
    long n, classes, limit; /* boxes; orders of them; that are kept at most */
    float overlap, least;
    const float *boxes; /* [b, n, 4] */
    const void *order;  /* [b, classes, n] */
    const float *scores;
    void *y; /* [b, classes, limit] */
} ek_select_args;
#endif
