/* Maximum magnitude of each EK_UNARY_CHUNK values: one task each, stored in x_scale[1 + task];
 * quantize.c scales by the overall maximum.
 *
 * Compile-time parameters: NAME, EK_SIMD. */
#include "unary.h"

#include "range.h"

void NAME(const void *args, long begin, long end) {
    const ek_unary_args *g = args;
    for (long task = begin; task < end; task++) {
        const long from = task * EK_UNARY_CHUNK, to = ek_min(from + EK_UNARY_CHUNK, g->n);
        float low, high;
        range_of((const float *)g->x + from, to - from, &low, &high);
        g->x_scale[1 + task] = -low > high ? -low : high;
    }
}
