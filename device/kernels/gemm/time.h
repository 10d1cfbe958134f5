/* Timing of products and look-ups, without a caller's overhead in each. */
#ifndef EK_GEMM_TIME_H
#define EK_GEMM_TIME_H
#include "table.h"

/* Nanoseconds of `count` products in a row. With a table each one looks its method up first, and
 * `how` is only what packed operands were packed for. */
uint64_t ek_gemm_time(ek_gemm_table *table, const ek_gemm_args *args, const ek_gemm_method *how,
                      int threads, void *scratch, ek_pool *pool, long count);

/* Nanoseconds of looking up `count` shapes (m, n, k in turn), `rounds` times over. */
uint64_t ek_gemm_lookup_time(ek_gemm_table *table, int dtype, int threads, const long *shapes,
                             long count, long rounds);
#endif
