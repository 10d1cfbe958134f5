/* y = x; y[indices[i], :] = updates[i, :], or joined with what is there. */
#ifndef EK_SCATTER_H
#define EK_SCATTER_H
#include "../kernel.h"

typedef struct {
    long rows, step; /* of x; those of a task */
    long count;      /* indices */
    long run;        /* elements of a row */
    const void *x, *indices, *updates;
    void *y;
} ek_scatter_args;
#endif
