/* See time.h. */
#include "time.h"
#include "../runtime/clock.h"

uint64_t ek_gemm_time(ek_gemm_table *table, const ek_gemm_args *args, const ek_gemm_method *how,
                      int threads, void *scratch, ek_pool *pool, long count) {
    ek_gemm_method method = *how;
    int kind = args->dtype | (args->a_packed ? EK_GEMM_A_PACKED : 0) |
               (args->b_packed ? EK_GEMM_B_PACKED : 0);
    uint64_t start = ek_nanoseconds();
    for (long i = 0; i < count; i++) {
        if (table)
            method = ek_gemm_lookup(table, kind, threads, args->m, args->n, args->k, NULL);
        ek_gemm_run(args, &method, scratch, pool);
    }
    return ek_nanoseconds() - start;
}

uint64_t ek_gemm_lookup_time(ek_gemm_table *table, int dtype, int threads, const long *shapes,
                             long count, long rounds) {
    volatile int32_t used;
    uint64_t start = ek_nanoseconds();
    for (long r = 0; r < rounds; r++)
        for (long i = 0; i < count; i++) {
            const long *s = shapes + 3 * i;
            used = ek_gemm_lookup(table, dtype, threads, s[0], s[1], s[2], NULL).mc;
        }
    (void)used;
    return ek_nanoseconds() - start;
}
