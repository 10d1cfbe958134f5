/* f32 or f16 convolution as GEMM: m = pixels, n = output channels, k = kh * kw * c. */
#ifndef EK_F32_CONV_H
#define EK_F32_CONV_H
#include "../kernel.h"

typedef struct {
    ek_window win;
    int pointwise;    /* 1x1, stride 1, no padding: rows of x are rows of the GEMM */
    int row_segments; /* a row of the window (kw * c floats) is one run of memory */
    int panel_outer;  /* weights larger than the cache: walk them once, pixels inside */
    long panels;      /* ceil(oc / NR) */
    long band;        /* with panel_outer: tiles of pixels that all panels are walked with before
                         the next ones; 0, and with K_BLOCK: all */
    int block_outer;  /* with K_BLOCK and panel_outer: a block of k is walked with all panels before
                         the next one */
    const void *x;
    const void *weights;  /* [panel][k][NR], the last panel narrowed to whole vectors; so for each
                             block of k, one after the other */
    const void *bias;     /* padded to whole vectors */
    const void *zeros;    /* at least c zeros */
    const void *residual; /* like y, or NULL: added before the clamp */
    void *y;
    long pitch;      /* elements from one pixel of y to the next: at least oc */
    float low, high; /* clamp */
    ek_epilogue epilogue;
    long from, depth; /* with K_BLOCK: the block of k that is being walked, the kernel's own */
} ek_f32_conv_args;
#endif
