/* Samples of 16 bits, shifted left as far as the largest allows. */
#ifndef EK_SIGNAL_AUTO_SCALE_H
#define EK_SIGNAL_AUTO_SCALE_H
#include "../kernel.h"

typedef struct {
    long n;
    const void *x;
    void *y;
    void *bits; /* int32_t: how far */
} ek_auto_scale_args;
#endif
