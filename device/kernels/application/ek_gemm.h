/* C[m, n] = A[m, k] . B[k, n] + bias[n]. */
#ifndef EK_KERNELS_GEMM_H
#define EK_KERNELS_GEMM_H
#include "ek_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A and B of f32 with C of f32; or s8 and s8, or u8 and s8, with C of s32, exact modulo 2^32.
 * On cores that compute in half precision also f16 and f16 with C of f16: sums of 128 products in
 * f16, added up in f32; elements of each row of A and C are adjacent. `bias` is of C's type, or
 * NULL. C shares no memory with the operands. 1 to 256 threads. */
int ek_gemm(ek_kernels *kernels, const ek_matrix *a, const ek_matrix *b, const void *bias,
            const ek_result *c, int threads);

/* The method of a product, and the rule that chose it: "exact", "relaxed:" and the feature that the
 * row of the table shares, or "analytic". m, k and n: the product on which the nearest row was
 * measured, if has_row. reason: why, as a sentence. mc to nr, in elements: block sizes and register
 * tile; pack_a, pack_b: copies panels first; by_columns: threads share columns of C. If columns of
 * C have adjacent elements, all of it is about the transposed product, as the reason says. */
typedef struct {
    char rule[16], reason[160];
    int64_t m, k, n;
    int32_t has_row, mc, kc, nc, mr, nr, pack_a, pack_b, by_columns;
} ek_gemm_choice;

/* `c`: the result of ek_gemm; NULL: one of adjacent rows. */
int ek_gemm_explain(ek_kernels *kernels, const ek_matrix *a, const ek_matrix *b, const ek_result *c,
                    int threads, ek_gemm_choice *choice);

#ifdef __cplusplus
}
#endif

#endif
