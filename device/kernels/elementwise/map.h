/* y = f(a, b, c) with NumPy's broadcasting: functions of one to three operands of plain types. */
#ifndef EK_MAP_H
#define EK_MAP_H
#include "../kernel.h"

typedef struct {
    long dim[EK_MAP_DIMS];      /* collapsed shape of y, innermost last */
    long a_stride[EK_MAP_DIMS]; /* in elements; 0 broadcasts. Innermost: 0 or 1 */
    long b_stride[EK_MAP_DIMS];
    long c_stride[EK_MAP_DIMS];
    long chunks; /* ceil(dim[last] / EK_MAP_CHUNK) */
    const void *a, *b, *c;
    void *y;
    float p, q; /* parameters of the function */
} ek_map_args;
#endif
