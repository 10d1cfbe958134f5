/* First operators of an image network, a few rows at a time: layout conversion from channels first
 * to channels last, convolution, max pooling; the first or the last may be absent. */
#ifndef EK_STEM_H
#define EK_STEM_H
#include "../pool/pool.h"
#include "f32_conv.h"

/* Each member's arguments are those of the unfused operator, except for the addresses of the
 * intermediate images. Batch size 1. */
typedef struct {
    const void *x; /* if channels first: f32 */
    ek_f32_conv_args conv;
    ek_pool2d_args pool; /* if present */
    int rows;            /* output rows per pass */
    int held;            /* offset in the buffer, in elements, of the image rows */
    int line;            /* with CHW_LINES: elements of a row of a channel with its padding */
    int plane;           /* if channels first: elements between channels of x */
} ek_stem_args;
#endif
