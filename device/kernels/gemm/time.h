/* Times products and look-ups without per-call overhead of the caller. */
#ifndef EK_GEMM_TIME_H
#define EK_GEMM_TIME_H
#include "table.h"

/* Nanoseconds of `count` consecutive products. With a table, each product looks up its method
 * first, and `how` only describes how packed operands were packed. */
uint64_t ek_gemm_time(ek_gemm_table *table, const ek_gemm_args *args, const ek_gemm_method *how,
                      int threads, void *scratch, ek_pool *pool, long count);

/* Nanoseconds of looking up `count` shapes (m, n, k each), repeated `rounds` times. */
uint64_t ek_gemm_lookup_time(ek_gemm_table *table, int dtype, int threads, const long *shapes,
                             long count, long rounds);
#endif
