/* The GEMM knowledge base of one platform on the board: kb/tables/gemm_table.py's rules in C.
 *
 * Exact, else relaxed by the priority of the features, else ek_gemm_default. The newest answers are
 * kept, so that the same question costs one hash look-up however it was found. */
#ifndef EK_GEMM_TABLE_H
#define EK_GEMM_TABLE_H
#include "gemm.h"

typedef enum {
    EK_GEMM_EXACT = 0,
    EK_GEMM_RELAXED = 1, /* + feature: 0 scale, 1 m, 2 n, 3 k */
    EK_GEMM_ANALYTIC = 5,
} ek_gemm_rule;

typedef struct ek_gemm_table ek_gemm_table;

/* Reads what gemm_blob.py of the host wrote; the bytes are copied. NULL: not a table, or no memory.
 */
ek_gemm_table *ek_gemm_table_open(const void *blob, size_t bytes);
void ek_gemm_table_close(ek_gemm_table *table);

/* Sizes >= 0; `dtype` may say what is packed; `rule` tells an ek_gemm_rule, or is NULL. Any number
 * of threads may look up at once. A table of NULL has no rows. */
ek_gemm_method ek_gemm_lookup(ek_gemm_table *table, int dtype, int threads, long m, long n, long k,
                              int *rule);
#endif
