/* Prefetch of the panel of B that comes next, while this one is multiplied. Measured on Intel's
 * cores with AMX, which do not see it coming: B in place is a line or two of many rows, more than
 * they follow at once, and a packed B comes from the third cache at half the speed of the second.
 * Other cores prefetch nothing. */
#ifndef EK_GEMM_PREFETCH_H
#define EK_GEMM_PREFETCH_H
#include "../codes.h"

#define EK_GEMM_PREFETCH_B 1048576 /* bytes of a B of which not all stays in the second cache */
#define EK_GEMM_LINE_BYTES 64

/* Rows of the next panel, `row` elements apart; NULL: nothing to prefetch. */
typedef struct {
    const char *rows;
    long row;
} ek_gemm_next;

/* Whether it pays for B in blocks of depth k; tiles of bytes never do. Rows in place that share
 * sets of the second cache would drive each other out before they are read. */
static inline int ek_gemm_prefetches_b(const ek_gemm_args *g, const ek_gemm_operands *types,
                                       long k) {
#ifdef EK_AMX
    const long stride = g->b_row * types->b_bytes;
    if (g->dtype != EK_GEMM_F32 || g->k * g->n * types->b_bytes < EK_GEMM_PREFETCH_B)
        return 0;
    return g->b_packed || (g->b_col == 1 && k * (stride & -stride) <= EK_GEMM_PREFETCH_B);
#else
    (void)g, (void)types, (void)k;
    return 0;
#endif
}

/* What tile `at` of `tiles` of a panel prefetches: one line of every row, which leaves as much time
 * as there is. With fewer tiles than lines, the first prefetches all where rows are apart; a packed
 * panel, which is one run of lines, the core then finds for itself. */
static inline void ek_gemm_prefetch_next(ek_gemm_job *job, const ek_gemm_next *next, long at,
                                         long tiles, long lines) {
#ifdef EK_AMX
    const int all = tiles < lines;
    const int any = next->rows && at < (!all ? lines : job->b_in_place ? 1 : 0);
    job->prefetch = any ? next->rows + at * EK_GEMM_LINE_BYTES : NULL;
    job->prefetch_row = next->row, job->prefetch_all = all;
#else
    (void)job, (void)next, (void)at, (void)tiles, (void)lines;
#endif
}
#endif
