/* f32 convolution of 3x3 windows, stride 1, in tiles of 4x4 output pixels (Winograd F(4x4, 3x3)).
 */
#ifndef EK_F32_WINOGRAD_H
#define EK_F32_WINOGRAD_H
#include "../kernel.h"

typedef struct {
    ek_window win; /* c and oc are multiples of EK_VL */
    long panels;   /* ceil(oc / NR) */
    long parts;    /* of the panels, each a task: 1 where tiles are enough for all threads */
    const float *x;
    const float *weights; /* transformed: [panel][36][c][NR], the last panel as narrow as it is */
    const float *bias;
    const float *residual; /* like y, or NULL: added before the clamp */
    float *y;
    long pitch;      /* floats from one pixel of y to the next: at least oc */
    float low, high; /* clamp */
    ek_epilogue epilogue;
} ek_f32_winograd_args;
#endif
