/* f32 or f16 convolution of 3x3 windows, stride 1, in tiles of 4x4 output pixels (Winograd F(4x4,
 * 3x3)).
 */
#ifndef EK_F32_WINOGRAD_H
#define EK_F32_WINOGRAD_H
#include "../kernel.h"

typedef struct {
    ek_window win;    /* c and oc are multiples of EK_VL */
    long first, last; /* channels of y to compute: multiples of EK_VL */
    long panels;      /* of them: ceil((last - first) / NR) */
    long parts; /* parts the panels are split into, one per task; 1 if there are enough tiles for
                   all threads */
    const void *x;
    long x_pitch;        /* elements between consecutive pixels of x: at least c */
    const void *weights; /* transformed, of these channels: [panel][36][c][NR], the last panel
                            unpadded */
    const void *bias;
    const void *residual; /* oc channels per pixel, or NULL: added before the clamp */
    long residual_pitch;  /* elements between consecutive pixels of residual: at least oc */
    void *y;
    long pitch;      /* elements between consecutive pixels of y: at least oc */
    float low, high; /* clamp */
    ek_epilogue epilogue;
} ek_f32_winograd_args;
#endif
