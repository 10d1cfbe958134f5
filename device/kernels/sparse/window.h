/* A pruned convolution with a window on channel-major images. */
#ifndef EK_SPARSE_WINDOW_H
#define EK_SPARSE_WINDOW_H
#include "../kernel.h"
#include "sparse.h"

typedef struct {
    ek_window win;
    ek_spmm_plan plan; /* panels of `channels`; columns are places behind a band's first pixel */
    const float *x;    /* [n][c][h][w] */
    float *y;          /* [n][oc][oh][ow] */
    const float *bias; /* [oc] */
    const float *residual; /* as y, added before the clamp; or NULL */
    float low, high;
    long band; /* output rows of a task at most */
    /* The copy of a band in a panel is [channels][sh][sw][lines][pitch], lines and columns sorted
     * by what the stride leaves of them. */
    long channels, lines, pitch;
} ek_sparse_window_args;
#endif
