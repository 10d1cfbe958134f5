/* Products that need no plan; see direct.c. */
#ifndef EK_GEMM_DIRECT_H
#define EK_GEMM_DIRECT_H
#include "microkernels.h"

/* Computes the product and returns 1, or returns 0 if it needs packing or several blocks of k. */
int ek_gemm_direct(const ek_gemm_args *args, const ek_gemm_method *how, ek_pool *pool);

/* A tile's position in C, in elements; width is a multiple of the vector length. */
typedef struct {
    long row, rows, column, columns, width;
} ek_gemm_place;

/* Runs a tile that cannot be stored in place, because C is column-major or its last vector is
 * partial: it goes through a staging buffer. `job` is restored on return. */
void ek_gemm_staged_tile(ek_gemm_job *job, ek_gemm_tile kernel, const void *a, const void *b,
                         char *c, const ek_gemm_place *at, long bytes);
#endif
