/* 8-bit convolution as GEMM with exact 32-bit sums: m = pixels, n = output channels. */
#ifndef EK_I8_CONV_H
#define EK_I8_CONV_H
#include "../kernel.h"

typedef struct {
    ek_window win;
    int pointwise;          /* 1x1, stride 1, no padding: rows of x are rows of the GEMM */
    int segments;           /* window rows are read in place; 0: the window is packed */
    long segment_length;    /* kw * c rounded up to the kernel's step */
    int panel_outer;        /* weights exceed the cache: stream them once, with the pixel loop
                               inside */
    long panels;            /* ceil(oc / NR) */
    long band;              /* with panel_outer: pixel tiles that all panels process before the next
                               band; 0: all */
    long k_padded;          /* rows of the packed weights: kh segments, or kh * kw * c rounded up */
    long pitch;             /* elements between consecutive pixels of y: at least oc */
    int x_zero;             /* zero point of x as stored, which is the padding value */
    int w_zero;             /* zero point of the packed weights (only with W_ZERO 1) */
    const int32_t *w_zeros; /* per channel (only with W_ZERO 2) */
    const void *x;
    const void *weights; /* [panel][k_padded / G][NR][G], the last panel narrowed to full vectors */
    const int32_t *bias; /* with everything independent of x folded in */
    /* integer output: y = clamp(requantize(sum, multiplier, left, right) + y_zero) */
    const int32_t *multiplier, *left, *right;
    int y_zero, low, high;
    /* with FLOAT_REQUANT, whose bounds are those of the type: y is in the low bits of the float
     * slope * sum
     * + offset, where the sum's bits are read as a float; with FLOAT_REQUANT 2, second_slope * that
     * + second_offset follows. The compiler has found and proven the coefficients */
    const float *slope, *offset, *second_slope, *second_offset;
    const uint8_t *table; /* with LOOK_UP: table of the fused function, indexed by the clamped
                             value */
    /* float output: y = clamp(sum * scale * x_scale + bias_f32), plus the old y if `add` points to
     * a nonzero value; x_scale_step 0: all pixels share the first scale, 1: one scale per pixel */
    const float *scale, *x_scale, *bias_f32;
    const int32_t *add;
    int x_scale_step;
    float low_f32, high_f32;
    /* with GROUPS, float output: `groups` groups of k, `group` values of x each, have one scale per
     * channel in scale, or with BF16_SCALES scale16, [groups][scale_pitch]. `start` [scale_pitch],
     * or NULL, is added to the groups' total before it is scaled: corrections for x */
    long groups, group, scale_pitch;
    const uint16_t *scale16;
    const float *start;
    /* with STREAM: x meets the groups from `first` on of the `streamed` ones in weights */
    long first, streamed;
    const void *ahead; /* with READ_AHEAD: weights of later calls, which the first tasks prefetch in
                          this order; behind at least EK_READ_AHEAD_TOUCHED bytes */
    long ahead_bytes;
    void *y;
    long bordered; /* scratch bytes for images copied with padding, only if there is a single task;
                      0: windows are read or copied from x */
} ek_i8_conv_args;
#endif
