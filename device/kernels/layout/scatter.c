/* Scatters rows to given indices. Compile-time parameters: NAME, EK_SIMD, T, TI (type of indices),
 * one of JOIN_NONE, JOIN_ADD, JOIN_MUL, JOIN_MAX, JOIN_MIN. */
#include "../kernel.h"

typedef struct {
    long rows, step; /* of x; per task */
    long count;      /* indices */
    long run;        /* elements per row */
    const void *x, *indices, *updates;
    void *y;
} ek_scatter_args;

#ifdef JOIN_ADD
#define JOIN(a, b) ((T)((a) + (b)))
#elif defined JOIN_MUL
#define JOIN(a, b) ((T)((a) * (b)))
#elif defined JOIN_MAX
#define JOIN(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#elif defined JOIN_MIN
#define JOIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#else
#define JOIN(a, b) (b)
#endif

/* Task: a block of rows of y. Each goes through all indices in order and applies those within its
 * rows. */
void NAME(const void *args, long begin, long end) {
    const ek_scatter_args *a = args;
    long first = begin * a->step, last = ek_min(end * a->step, a->rows), run = a->run;
    T *y = a->y;
    if (a->x != a->y) /* a state is updated in place */
        memcpy(y + first * run, (const T *)a->x + first * run,
               (size_t)((last - first) * run) * sizeof(T));
    for (long i = 0; i < a->count; i++) {
        long at = (long)((const TI *)a->indices)[i];
        at = at < 0 ? at + a->rows : at;
        if (at < first || at >= last)
            continue;
        const T *from = (const T *)a->updates + i * run;
        EK_VECTOR_LOOP
        for (long k = 0; k < run; k++)
            y[at * run + k] = JOIN(y[at * run + k], from[k]);
    }
}
