/* Strided copy (NAME) and fill (OP_FILL), on bytes: one kernel for every element type. */
#include "copy.h"

#ifdef OP_FILL
/* Tasks: one. Pads are small against what is copied into them. */
void NAME(const ek_copy_args *a, long begin, long end) {
    (void)begin;
    (void)end;
    uint32_t *y = (uint32_t *)a->y;
    for (long i = 0; i < a->fill_bytes / 4; i++)
        y[i] = a->fill_value;
    memcpy((char *)a->y + a->fill_bytes / 4 * 4, &a->fill_value, a->fill_bytes % 4);
}
#else
EK_INLINE void copy_rows(const ek_copy_args *a, const char *x, char *y, const long run) {
    const long *n = a->dim, *xs = a->x_stride, *ys = a->y_stride;
    for (long i = 0; i < n[1]; i++)
        for (long j = 0; j < n[2]; j++)
            for (long k = 0; k < n[3]; k++)
                for (long l = 0; l < n[4]; l++) {
                    const char *from = x + i * xs[1] + j * xs[2] + k * xs[3] + l * xs[4];
                    char *to = y + i * ys[1] + j * ys[2] + k * ys[3] + l * ys[4];
                    for (long m = 0; m < n[5]; m++)
                        memcpy(to + m * ys[5], from + m * xs[5], run);
                }
}

/* Tasks: the outermost dimension. Short runs get a copy of known length. */
void NAME(const ek_copy_args *a, long begin, long end) {
    for (long t = begin; t < end; t++) {
        const char *x = (const char *)a->x + t * a->x_stride[0];
        char *y = (char *)a->y + t * a->y_stride[0];
        switch (a->run) {
        case 1:
            copy_rows(a, x, y, 1);
            break;
        case 4:
            copy_rows(a, x, y, 4);
            break;
        case 8:
            copy_rows(a, x, y, 8);
            break;
        case 16:
            copy_rows(a, x, y, 16);
            break;
        default:
            copy_rows(a, x, y, a->run);
        }
    }
}
#endif
