/* Each value several times, one copy behind the other: channels for several filters each. */
#ifndef EK_REPEAT_H
#define EK_REPEAT_H
#include "../kernel.h"

typedef struct {
    long count;    /* values of x */
    const void *x; /* [count] */
    void *y;       /* [count][TIMES] */
} ek_repeat_args;
#endif
