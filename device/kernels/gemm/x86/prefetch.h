/* Prefetches the next panel of B while the current one is multiplied. Measured on Intel cores with
 * AMX, whose prefetchers miss it: in-place B is one or two lines of more rows than they track, and
 * a packed B comes from L3 at half the speed of L2. Other cores prefetch nothing. */
#ifndef EK_GEMM_PREFETCH_H
#define EK_GEMM_PREFETCH_H
#include "../microkernels.h"

#define EK_GEMM_PREFETCH_B 1048576 /* bytes of a B that does not fit L2 */
#define EK_GEMM_LINE_BYTES 64

/* Rows of the next panel, with a stride of `row` elements; NULL: nothing to prefetch. */
typedef struct {
    const char *rows;
    long row;
} ek_gemm_next;

/* Whether prefetching pays off for B in blocks of depth k; never for 8-bit tiles. In-place rows
 * that share L2 sets would evict each other before use. */
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

/* Sets what tile `at` out of `tiles` of a panel prefetches: one line of every row, which leaves the
 * most time. With fewer tiles than lines, the first tile prefetches all lines if rows are strided;
 * a packed panel is contiguous, so hardware prefetchers find it. */
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
