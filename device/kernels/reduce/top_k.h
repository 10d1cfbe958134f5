/* The k largest or smallest values of each row, sorted, and where they stand. */
#ifndef EK_TOP_K_H
#define EK_TOP_K_H
#include "../kernel.h"

typedef struct {
    long n; /* values in a row */
    long k; /* of 1 to n */
    const void *x;
    void *y, *at;
} ek_top_k_args;
#endif
