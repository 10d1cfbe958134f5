/* Tasks: blocks of columns, which become rows of y. Compile-time parameter: NAME. */
#include "transpose.h"
#include "../gemm/transpose.h"

void NAME(const void *args, long begin, long end) {
    const ek_transpose_args *a = args;
    for (long t = begin; t < end; t++) {
        long matrix = t / a->blocks * a->rows * a->columns, first = t % a->blocks * a->block;
        long columns = ek_min(a->block, a->columns - first);
        ek_transpose(a->x + matrix + first, a->columns, a->rows, columns,
                     a->y + matrix + first * a->rows, a->rows);
    }
}
