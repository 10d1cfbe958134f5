/* Products of f16 matrices for programs, as models compute them; only in libraries of cores that
 * compute in half precision. */
#ifndef EK_PRODUCT_HALF_H
#define EK_PRODUCT_HALF_H
#include "../gemm/gemm.h"

/* The CPU feature that they need and this CPU lacks, or NULL. */
const char *ek_gemm_f16_missing(void);

/* C = A . B + bias, all f16, with the tile of the method's width. Rows of A and C are contiguous, C
 * does not overlap A or B; other strides are arbitrary, but a B whose columns are not adjacent is
 * packed in any case. The epilogue is only the bias along n, added to rounded sums. */
void ek_gemm_f16_run(const ek_gemm_args *args, const ek_gemm_method *how, ek_pool *pool);
#endif
