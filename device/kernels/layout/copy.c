/* Strided copy (NAME) and fill (OP_FILL), on bytes: one kernel for every element type. */
#include "copy.h"

/* Rows below the outermost dimension; `run` is a constant where that makes the copy a move. */
EK_INLINE void rows(const ek_copy_args *a, const char *x, char *y, const long run) {
    const long *n = a->dim, *xs = a->x_stride, *ys = a->y_stride;
    for (long i = 0; i < n[1]; i++)
        for (long j = 0; j < n[2]; j++)
            for (long k = 0; k < n[3]; k++)
                for (long l = 0; l < n[4]; l++) {
                    const char *from = x + i * xs[1] + j * xs[2] + k * xs[3] + l * xs[4];
                    char *to = y + i * ys[1] + j * ys[2] + k * ys[3] + l * ys[4];
                    for (long m = 0; m < n[5]; m++)
#ifdef OP_FILL
                        memset(to + m * ys[5], a->fill_byte, run);
#else
                        memcpy(to + m * ys[5], from + m * xs[5], run);
#endif
                    (void)from;
                }
}

/* Tasks: the outermost dimension. */
void NAME(const void *args, long begin, long end) {
    const ek_copy_args *a = args;
    for (long t = begin; t < end; t++) {
        const char *x = (const char *)a->x + t * a->x_stride[0];
        char *y = (char *)a->y + t * a->y_stride[0];
        switch (a->run) {
        case 1:
            rows(a, x, y, 1);
            break;
        case 4:
            rows(a, x, y, 4);
            break;
        case 8:
            rows(a, x, y, 8);
            break;
        case 16:
            rows(a, x, y, 16);
            break;
        case 32:
            rows(a, x, y, 32);
            break;
        case 64:
            rows(a, x, y, 64);
            break;
        default:
            rows(a, x, y, a->run);
        }
    }
}
