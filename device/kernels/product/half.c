/* Products of f16 matrices for programs: packed.c, the kernel of models, for all rows and columns.
 *
 * Compile-time parameters: PACKED (the name of the kernel), EK_SIMD, MR, NV. */
#include "half.h"
#include "packed.h"

#define WIDTH (NV * EK_VL)
#define FEW_ROWS (2 * MR) /* of A: with so few, packing B does not pay */
#define BIAS_ROWS 16      /* at a time */

void PACKED(const void *args, long begin, long end);

ek_gemm_method ek_gemm_f16_method(const ek_gemm_args *args) {
    const int in_place = args->b_col == 1 && (args->m <= FEW_ROWS || args->b_row == WIDTH);
    const ek_gemm_method how = {
        .mc = EK_PACKED_ROWS,
        .kc = EK_HALF_SUMS,
        .nc = WIDTH,
        .mr = MR,
        .nr = WIDTH,
        .pack_b = !in_place,
    };
    return how;
}

static void clear_rows(const ek_gemm_args *g) {
    for (long i = 0; i < g->m; i++)
        memset((ek_real *)g->c + i * g->c_row, 0, sizeof(ek_real) * (size_t)g->n);
}

/* Task: a row. */
static void add_bias(const void *args, long begin, long end) {
    const ek_gemm_args *g = args;
    const ek_real *bias = g->epilogue.bias;
    for (long i = begin; i < end; i++) {
        ek_real *c = (ek_real *)g->c + i * g->c_row;
        for (long j = 0; j < g->n; j++)
            c[j] += bias[j];
    }
}

void ek_gemm_f16_run(const ek_gemm_args *args, ek_pool *pool) {
    ek_packed_args g = {
        .m = args->m,
        .k = args->k,
        .n = args->n,
        .bands = (args->m + EK_PACKED_ROWS - 1) / EK_PACKED_ROWS,
        .panels = (args->n + WIDTH - 1) / WIDTH,
        .a_row = args->a_row,
        .b_row = args->b_row,
        .b_column = args->b_col,
        .y_row = args->c_row,
        .in_place = !ek_gemm_f16_method(args).pack_b,
        .scale = 1,
        .a = args->a,
        .b = args->b,
        .y = args->c,
    };
    for (int d = 0; d < EK_MATMUL_DIMS; d++)
        g.dim[d] = 1;
    if (args->k)
        ek_parallel(pool, PACKED, &g, g.bands * g.panels, 1);
    else
        clear_rows(args);
    if (args->epilogue.bias)
        ek_parallel(pool, add_bias, args, args->m, BIAS_ROWS);
}
