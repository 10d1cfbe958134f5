/* Copies between strided arrays: pad, concat, split, slice, transpose, depth-to-space, … */
#ifndef EK_COPY_H
#define EK_COPY_H
#include "../kernel.h"

typedef struct {
    long dim[EK_COPY_DIMS];      /* shape of the copy, innermost last; dim[0] is the task */
    long x_stride[EK_COPY_DIMS]; /* in bytes */
    long y_stride[EK_COPY_DIMS];
    long run;      /* bytes contiguous on both sides, copied at once */
    const void *x; /* fill: any valid address */
    void *y;
    int fill_byte; /* fill: the value of every byte (0, or an 8-bit zero point) */
} ek_copy_args;
#endif
