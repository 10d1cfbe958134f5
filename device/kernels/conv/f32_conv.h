/* f32 or f16 convolution as GEMM: m = pixels, n = output channels, k = kh * kw * c. */
#ifndef EK_F32_CONV_H
#define EK_F32_CONV_H
#include "../kernel.h"

typedef struct {
    ek_window win;
    int pointwise;    /* 1x1, stride 1, no padding: rows of x are rows of the GEMM */
    int row_segments; /* a window row (kw * c floats) is contiguous */
    int panel_outer;  /* weights exceed the cache: stream them once, with the pixel loop inside */
    long panels;      /* ceil(oc / NR) */
    long band;        /* with panel_outer: pixel tiles that all panels process before the next band;
                         0, and with K_BLOCK: all tiles */
    int block_outer;  /* with K_BLOCK and panel_outer: all panels process a block of k before the
                         next one */
    const void *x;
    long x_pitch; /* elements between consecutive pixels of x: c if the window has row_segments */
    const void *weights;  /* [panel][k][NR], the last panel narrowed to full vectors; with blocks of
                             k, one such array per block */
    const float *scales;  /* of the channels, padded to full vectors, for weights of 8 bits; see
                             NARROW in f32_conv.c */
    const void *bias;     /* padded to full vectors */
    const void *zeros;    /* at least c zeros */
    const void *residual; /* oc channels per pixel, or NULL: added before the clamp */
    long residual_pitch;  /* elements between consecutive pixels of residual: at least oc */
    void *y;
    long pitch;      /* elements between consecutive pixels of y: at least oc */
    float low, high; /* clamp */
    ek_epilogue epilogue;
    const void *ahead; /* with READ_AHEAD: weights of later calls, which the first tasks prefetch in
                          this order; behind at least EK_READ_AHEAD_TOUCHED bytes */
    long ahead_bytes;
    long from, depth; /* with K_BLOCK: the current block of k, set by the kernel */
} ek_f32_conv_args;
#endif
