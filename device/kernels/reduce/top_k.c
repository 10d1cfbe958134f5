/* The k largest (SMALLEST: smallest) values of each row, sorted; equal values in order of position,
 * NaN last. Compile-time parameters: NAME, EK_SIMD, TX, TI (type of indices).
 *
 * The outputs form a heap with the worst of the k at its root. Values not better than the root are
 * skipped BLOCK at a time, which is nearly all of a long row. */
#include "../kernel.h"

typedef struct {
    long n; /* values per row */
    long k; /* 1 .. n */
    const void *x;
    void *y, *at;
} ek_top_k_args;

#define BLOCK 64

#ifdef SMALLEST
#define MORE(v, s) ((v) < (s))
#else
#define MORE(v, s) ((v) > (s))
#endif
/* Whether v ranks before s, regardless of position. */
#define BEFORE(v, s) (MORE(v, s) || ((s) != (s) && (v) == (v)))

/* Whether (v, i) ranks after (s, j) in the result. */
static inline int behind(TX v, TI i, TX s, TI j) {
    return BEFORE(s, v) || (!BEFORE(v, s) && i > j);
}

/* Inserts (v, i) at `p` of a heap of n, sifting down so that parents rank after their children. */
static void sift(TX *y, TI *at, long n, long p, TX v, TI i) {
    for (long child; (child = 2 * p + 1) < n; p = child) {
        if (child + 1 < n && behind(y[child + 1], at[child + 1], y[child], at[child]))
            child++;
        if (!behind(y[child], at[child], v, i))
            break;
        y[p] = y[child], at[p] = at[child];
    }
    y[p] = v, at[p] = i;
}

static int any_before(const TX *x, long n, TX worst) {
    int found = 0;
    for (long i = 0; i < n; i++)
        found |= BEFORE(x[i], worst);
    return found;
}

static void row(const TX *x, long n, long k, TX *y, TI *at) {
    for (long i = 0; i < k; i++)
        y[i] = x[i], at[i] = (TI)i;
    for (long p = k / 2 - 1; p >= 0; p--)
        sift(y, at, k, p, y[p], at[p]);
    for (long from = k; from < n; from += BLOCK) {
        long end = ek_min(from + BLOCK, n);
        if (!any_before(x + from, end - from, y[0]))
            continue;
        for (long i = from; i < end; i++)
            if (BEFORE(x[i], y[0]))
                sift(y, at, k, 0, x[i], (TI)i);
    }
    for (long last = k - 1; last > 0; last--) {
        TX v = y[last];
        TI i = at[last];
        y[last] = y[0], at[last] = at[0];
        sift(y, at, last, 0, v, i);
    }
}

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_top_k_args *a = args;
    for (long t = begin; t < end; t++)
        row((const TX *)a->x + t * a->n, a->n, a->k, (TX *)a->y + t * a->k, (TI *)a->at + t * a->k);
}
