/* Products of f16 matrices for programs: packed.c, the kernel of models, for all rows and columns.
 *
 * Compile-time parameters: EK_SIMD; TILES: X(name, nv) ... of these kernels, nv vectors wide. */
#include "half.h"
#include "packed.h"

#define BIAS_ROWS 16 /* at a time */

#define X(name, nv) void name(const void *args, long begin, long end);
TILES
#undef X

typedef struct {
    void (*kernel)(const void *, long, long);
    int32_t nr;
} half_tile;
#define X(name, nv) {name, (nv) * EK_VL},
static const half_tile tiles[] = {TILES};
#undef X

/* The tile of a method; the first one if there is none as wide. */
static const half_tile *tile_of(const ek_gemm_method *how) {
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (tiles[i].nr == how->nr)
            return &tiles[i];
    return tiles;
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

void ek_gemm_f16_run(const ek_gemm_args *args, const ek_gemm_method *how, ek_pool *pool) {
    const half_tile *tile = tile_of(how);
    ek_packed_args g = {
        .m = args->m,
        .k = args->k,
        .n = args->n,
        .bands = (args->m + EK_PACKED_ROWS - 1) / EK_PACKED_ROWS,
        .panels = (args->n + tile->nr - 1) / tile->nr,
        .a_row = args->a_row,
        .b_row = args->b_row,
        .b_column = args->b_col,
        .y_row = args->c_row,
        .in_place = !how->pack_b && args->b_col == 1,
        .scale = 1,
        .a = args->a,
        .b = args->b,
        .y = args->c,
    };
    for (int d = 0; d < EK_MATMUL_DIMS; d++)
        g.dim[d] = 1;
    if (args->k)
        ek_parallel(pool, tile->kernel, &g, g.bands * g.panels, 1);
    else
        clear_rows(args);
    if (args->epilogue.bias)
        ek_parallel(pool, add_bias, args, args->m, BIAS_ROWS);
}
