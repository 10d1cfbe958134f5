/* Products of f16 matrices for programs, as models compute them; only in libraries of cores that
 * compute in half precision. */
#ifndef EK_PRODUCT_HALF_H
#define EK_PRODUCT_HALF_H
#include "../gemm/gemm.h"

/* The CPU feature that they need and this CPU lacks, or NULL. */
const char *ek_gemm_f16_missing(void);

/* Their only method. */
ek_gemm_method ek_gemm_f16_method(const ek_gemm_args *args);

/* C = A . B + bias, all f16. Rows of A and C are contiguous, C does not overlap A or B; other
 * strides are arbitrary. The epilogue is only the bias along n, added to rounded sums. */
void ek_gemm_f16_run(const ek_gemm_args *args, ek_pool *pool);
#endif
