/* Sum, product or extreme over the middle dimension of [outer, reduced, inner]. */
#ifndef EK_TOTAL_H
#define EK_TOTAL_H
#include "../kernel.h"

typedef struct {
    long reduced, inner;
    const void *x;
    void *y;
} ek_total_args;
#endif
