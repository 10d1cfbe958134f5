/* Rows of codes, each divided by its length. */
#ifndef EK_UNIT_LENGTH_H
#define EK_UNIT_LENGTH_H
#include "../kernel.h"

typedef struct {
    long n; /* codes of a row */
    int x_zero;
    const void *x;
    void *y;
} ek_unit_length_args;
#endif
