/* Arguments of a pruned convolution with a window on channels-first images. */
#ifndef EK_SPARSE_WINDOW_H
#define EK_SPARSE_WINDOW_H
#include "../kernel.h"
#include "sparse.h"

typedef struct {
    ek_window win;
    ek_spmm_plan plan;     /* panels of `channels`; columns are offsets from a band's first pixel */
    const float *x;        /* [n][c][h][w] */
    float *y;              /* [n][oc][oh][ow] */
    const float *bias;     /* [oc] */
    const float *residual; /* same layout as y, added before the clamp; or NULL */
    float low, high;
    long band; /* maximum output rows per task */
    /* A panel's copy of a band is [channels][sh][sw][lines][pitch], with lines and columns split by
     * stride phase. */
    long channels, lines, pitch;
} ek_sparse_window_args;
#endif
