/* Fixed-point Fourier transforms of rows, to the bit as kissfft's. */
#ifndef EK_SIGNAL_FOURIER_H
#define EK_SIGNAL_FOURIER_H
#include "../kernel.h"

typedef struct {
    long half;            /* complex points: half as many as real ones */
    long length;          /* values in a row of x */
    const int32_t *place; /* [half]: where a pair of samples goes before the first step */
    const void *twiddles; /* of each step [radix - 1, 2, length], one after the other */
    const void *last;     /* [2, half / 2] */
    const void *x;
    void *y;
    void *work; /* [rows, 2, half] */
} ek_fourier_args;
#endif
