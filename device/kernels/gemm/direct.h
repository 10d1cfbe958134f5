/* Products that need no plan: see direct.c. */
#ifndef EK_GEMM_DIRECT_H
#define EK_GEMM_DIRECT_H
#include "codes.h"

/* Makes the product and returns 1, or returns 0 if it needs packing on the way or several blocks
 * of k. */
int ek_gemm_direct(const ek_gemm_args *args, const ek_gemm_method *how, ek_pool *pool);

/* Where a tile stands in C, in elements; width is of whole vectors. */
typedef struct {
    long row, rows, column, columns, width;
} ek_gemm_place;

/* A tile that cannot be stored where it belongs: C is column-major, or a part of a vector is left:
 * it is stored to a buffer and copied. `job` is as before when it returns. */
void ek_gemm_staged_tile(ek_gemm_job *job, ek_gemm_tile code, const void *a, const void *b, char *c,
                         const ek_gemm_place *at, long bytes);
#endif
