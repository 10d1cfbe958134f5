/* Strided copy (NAME) and fill (OP_FILL) of bytes: one kernel for all element types. */
#include "copy.h"

/* RISC-V cores may have aligned words only. */
#ifdef __riscv
#define WORDS_ALIGNED 1
typedef uint32_t __attribute__((may_alias)) word;
typedef uint16_t __attribute__((may_alias)) half_word;
#else
#define WORDS_ALIGNED 0
typedef uint32_t __attribute__((may_alias, aligned(1))) word;
typedef uint16_t __attribute__((may_alias, aligned(1))) half_word;
#endif

#ifdef __riscv_v
typedef char __attribute__((vector_size(16), aligned(1))) bytes16;
#endif

/* Copies a constant-size run without a call. For RISC-V cores with aligned words only, LLVM would
 * expand 16 to 64 bytes to byte moves. */
EK_INLINE void move(char *y, const char *x, const long run) {
#ifdef __riscv_v
    if (run == 16 || run == 32 || run == 64) {
        for (long i = 0; i < run; i += 16)
            *(bytes16 *)(y + i) = *(const bytes16 *)(x + i);
        return;
    }
#endif
    memcpy(y, x, run);
}

#ifdef OP_FILL
EK_INLINE void line(const ek_copy_args *a, const char *x, char *y, long n, long x_stride,
                    long y_stride, const long run) {
    (void)x, (void)x_stride;
    for (long m = 0; m < n; m++)
        memset(y + m * y_stride, a->fill_byte, run);
}
#else
/* Runs of bytes are as long as words, but need not be where words are. */
EK_INLINE int are_words(const char *x, const char *y, long bytes) {
    return !WORDS_ALIGNED || (((uintptr_t)x | (uintptr_t)y) & (bytes - 1)) == 0;
}

/* The innermost dimension. Compilers recognize copying every second element (a channel shuffle) as
 * a deinterleave only with constant strides. */
EK_INLINE void line(const ek_copy_args *a, const char *x, char *y, long n, long x_stride,
                    long y_stride, const long run) {
    (void)a;
    if (run == 4 && x_stride == 8 && y_stride == 4 && are_words(x, y, 4))
        for (long m = 0; m < n; m++)
            ((word *)y)[m] = ((const word *)x)[2 * m];
    else if (run == 2 && x_stride == 4 && y_stride == 2 && are_words(x, y, 2))
        for (long m = 0; m < n; m++)
            ((half_word *)y)[m] = ((const half_word *)x)[2 * m];
    else if (run == 1 && x_stride == 2 && y_stride == 1)
        for (long m = 0; m < n; m++)
            y[m] = x[2 * m];
    else
        for (long m = 0; m < n; m++)
            move(y + m * y_stride, x + m * x_stride, run);
}
#endif

/* Rows of all inner dimensions; `run` is a constant where this turns the copy into a move. */
EK_INLINE void rows(const ek_copy_args *a, const char *x, char *y, const long run) {
    const long *n = a->dim, *xs = a->x_stride, *ys = a->y_stride;
    for (long i = 0; i < n[1]; i++)
        for (long j = 0; j < n[2]; j++)
            for (long k = 0; k < n[3]; k++)
                for (long l = 0; l < n[4]; l++) {
                    const char *from = x + i * xs[1] + j * xs[2] + k * xs[3] + l * xs[4];
                    char *to = y + i * ys[1] + j * ys[2] + k * ys[3] + l * ys[4];
                    line(a, from, to, n[5], xs[5], ys[5], run);
                }
}

/* A sequence of runs without inner dimensions. */
static void single(const ek_copy_args *a, const char *x, char *y, long n) {
    const long xs = a->x_stride[0], ys = a->y_stride[0];
    if (a->run == 1)
        line(a, x, y, n, xs, ys, 1);
    else if (a->run == 2)
        line(a, x, y, n, xs, ys, 2);
    else if (a->run == 4)
        line(a, x, y, n, xs, ys, 4);
    else if (a->run == 16)
        line(a, x, y, n, xs, ys, 16);
    else if (a->run == 32)
        line(a, x, y, n, xs, ys, 32);
    else
        line(a, x, y, n, xs, ys, a->run);
}

/* Task: an index of the outermost dimension. */
void NAME(const void *args, long begin, long end) {
    const ek_copy_args *a = args;
    const long *n = a->dim;
    /* Comparing their product would do, but LLVM's SLP vectorizer spends seconds analyzing it. */
    if (n[1] == 1 && n[2] == 1 && n[3] == 1 && n[4] == 1 && n[5] == 1) {
        single(a, (const char *)a->x + begin * a->x_stride[0],
               (char *)a->y + begin * a->y_stride[0], end - begin);
        return;
    }
    for (long t = begin; t < end; t++) {
        const char *x = (const char *)a->x + t * a->x_stride[0];
        char *y = (char *)a->y + t * a->y_stride[0];
        switch (a->run) {
        case 1:
            rows(a, x, y, 1);
            break;
        case 2:
            rows(a, x, y, 2);
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
