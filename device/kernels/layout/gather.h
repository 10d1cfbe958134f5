/* y[o, i, :] = x[o, indices[i], :]. */
#ifndef EK_GATHER_H
#define EK_GATHER_H
#include "../kernel.h"

typedef struct {
    long size;  /* of the gathered axis */
    long count; /* indices */
    long run;   /* bytes per index */
    long pitch; /* bytes between consecutive runs of y: at least run */
    const void *x, *indices;
    void *y;
} ek_gather_args;
#endif
