/* Execution plan of one ek_gemm_run call. */
#ifndef EK_GEMM_PLAN_H
#define EK_GEMM_PLAN_H
#include "blocks.h"

typedef struct {
    const ek_gemm_args *args; /* as given, or `own`: swapped and tidied */
    ek_gemm_args own;
    const ek_gemm_family *family;
    const ek_gemm_operands *types;
    ek_gemm_side a, b;
    ek_depths depths;
    long rows_per_block, columns_per_block; /* in panels */
    int a_form;                             /* in place; -1: panels packed now or beforehand */
    int pack_a, pack_b;                     /* during the product */
    int a_one_panel;                        /* a block of A becomes one panel */
    int uses_amx;                           /* panels of A are laid out for tile registers */
    int pack_tail;                          /* pack only the last panel of B, which is partial */
    int by_columns;                         /* threads share columns */
    int dot;                                /* one row, with B contiguous along k */
    int prefetches_b;                       /* the next panel */
    int c_bytes;
} ek_gemm_plan;

void ek_gemm_make_plan(ek_gemm_plan *p, const ek_gemm_args *args, const ek_gemm_method *how,
                       int threads);

/* `threads`, or 1 if the product is not worth waking them. */
int ek_gemm_threads(const ek_gemm_args *args, int threads);

/* Sizes of packed blocks in bytes: A, B, and the last panel of B. */
typedef struct {
    size_t a, b, tail;
} ek_gemm_workspace;

ek_gemm_workspace ek_gemm_workspace_of(const ek_gemm_plan *p);
#endif
