/* Repeats each value. Compile-time parameters: NAME, ITEM (an unsigned type as wide as a value),
 * TIMES (a constant, so that compilers interleave vectors). A task is BLOCK values. */
#include "repeat.h"

void NAME(const void *args, long begin, long end) {
    const ek_repeat_args *a = args;
    const ITEM *restrict x = a->x;
    ITEM *restrict y = a->y;
    const long last = ek_min(end * BLOCK, a->count);
    for (long i = begin * BLOCK; i < last; i++) {
        EK_UNROLL
        for (int t = 0; t < TIMES; t++)
            y[i * TIMES + t] = x[i];
    }
}
