/* On-board look-up in one platform's GEMM knowledge base: the rules of the
 * host's compiler/tables/gemm_table.py in C.
 *
 * Exact match, else relaxed by the priority of features, else ek_gemm_default. Recent results are
 * cached, so that repeating a query costs one hash look-up, however it was resolved. */
#ifndef EK_GEMM_TABLE_H
#define EK_GEMM_TABLE_H
#include "gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    EK_GEMM_EXACT = 0,
    EK_GEMM_RELAXED = 1, /* + feature: 0 scale, 1 m, 2 n, 3 k */
    EK_GEMM_ANALYTIC = 5,
} ek_gemm_rule;

typedef struct ek_gemm_table ek_gemm_table;

/* Opens a table written by the host's gemm_blob.py; the bytes are copied. NULL: invalid table, or
 * out of memory. */
ek_gemm_table *ek_gemm_table_open(const void *blob, size_t bytes);
void ek_gemm_table_close(ek_gemm_table *table);

/* The core that a table is of, and the one that this library was built for. */
const char *ek_gemm_table_platform(const ek_gemm_table *table);
const char *ek_kernels_platform(void);

/* Sizes >= 0; `dtype` may include the flags for packed operands; `rule`, unless NULL, receives an
 * ek_gemm_rule. Any number of threads may look up concurrently. A NULL table has no rows. */
ek_gemm_method ek_gemm_lookup(ek_gemm_table *table, int dtype, int threads, long m, long n, long k,
                              int *rule);

/* Writes m, k and n of the product on which the row of a look-up was measured, whether or not its
 * method is used. Returns 0 if no row matches. */
int ek_gemm_row_shape(const ek_gemm_table *table, int dtype, int threads, long m, long n, long k,
                      int64_t shape[3]);

#ifdef __cplusplus
}
#endif

#endif
