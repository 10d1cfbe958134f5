/* 8-bit convolution as GEMM with exact 32-bit sums: m = pixels, n = output channels. */
#ifndef EK_I8_CONV_H
#define EK_I8_CONV_H
#include "../kernel.h"

typedef struct {
    ek_window win;
    int pointwise;       /* 1x1, stride 1, no padding: rows of x are rows of the GEMM */
    int segments;        /* rows of the window are read as they lie in x; 0: the window is packed */
    long segment_length; /* kw * c rounded up to a step of the kernel */
    int panel_outer;     /* weights larger than the cache: walk them once, pixels inside */
    long panels;         /* ceil(oc / NR) */
    long band;           /* with panel_outer: tiles of pixels that all panels are walked with before
                            the next ones; 0: all */
    long k_padded;       /* rows of the packed weights: kh segments, or kh * kw * c rounded up */
    long pitch;          /* elements of y from one pixel to the next: at least oc */
    int x_zero;          /* zero point of x as stored: the value of padding */
    int w_zero;          /* zero point of the packed weights (only with W_ZERO 1) */
    const int32_t *w_zeros; /* of each channel (only with W_ZERO 2) */
    const void *x;
    const void
        *weights; /* [panel][k_padded / G][NR][G], the last panel narrowed to whole vectors */
    const int32_t *bias; /* with everything that does not depend on x folded in */
    /* integer output: y = clamp(requantize(sum, multiplier, left, right) + y_zero) */
    const int32_t *multiplier, *left, *right;
    int y_zero, low, high;
    /* with LINES, whose bounds are those of the type: y is in the lower bits of the float
     * slope * sum + offset, the bits of the sum being those of a float, or with LINES 2 in those of
     * second_slope * that + second_offset, which the compiler has found and proven */
    const float *slope, *offset, *second_slope, *second_offset;
    const uint8_t *table; /* with LOOK_UP: of the function behind that, by the clamped code */
    /* float output: y = clamp(sum * scale * x_scale + bias_f32), plus what y holds if `add` is not
     * NULL and not 0 there; x_scale_step 0: all pixels have the first scale, 1: each its own */
    const float *scale, *x_scale, *bias_f32;
    const int32_t *add;
    int x_scale_step;
    float low_f32, high_f32;
    /* with GROUPS, float output: `groups` groups of k, `group` values of x each, have a scale per
     * channel: scale, or with BF16_SCALES scale16, is [groups][scale_pitch]. `start` [scale_pitch],
     * or NULL, is added to the sum of what they give before that is scaled: corrections for x */
    long groups, group, scale_pitch;
    const uint16_t *scale16;
    const float *start;
    void *y;
    long bordered; /* bytes of scratch for images with their padding around them, 0: windows are
                      read, or copied, from x; by one task only */
} ek_i8_conv_args;
#endif
