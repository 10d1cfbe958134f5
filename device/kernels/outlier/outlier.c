/* Entry point: scans, chooses a path and runs its kernels, all in one workspace.
 *
 * Compile-time parameter: EK_SIMD. */
#include "../kernel.h"
#include "parts.h"

#define ALIGN 64
#define FLOAT_DEPTH 256 /* rows and columns of W dequantized at a time */
#define FLOAT_WIDTH 256
/* If rows of X1 cannot be read in place, this many are packed at a time. */
#define PACKED_ROWS 64
#define PACKED (EK_I8 == EK_I8_PAIR16 || EK_I8 == EK_I8_FOUR16)

/* Cost model, in units of full-speed float multiply-adds, for: a byte multiply-add (depends on the
 * instruction), quantizing a value of X, dequantizing a value of W, gathering a value, merging a
 * sum. */
#if EK_I8 == EK_I8_DOT4_US || EK_I8_SIGNED_DOTS || EK_I8 == EK_I8_MADOT
#define BYTE_COST 0.3
#elif EK_I8 == EK_I8_MULL16 || PACKED
#define BYTE_COST 0.7
#else
#define BYTE_COST 1.0
#endif
#define QUANTIZE_COST 12.0
#define DEQUANTIZE_COST 8.0
#define GATHER_COST 8.0
#define MERGE_COST 4.0
#define UNPACK_COST 0.7 /* per 4-bit value */

/* Offsets in the workspace. */
typedef struct {
    size_t scale, channels, tile, x1, x2, w4, bytes;
} layout;

static size_t take(size_t *at, size_t bytes) {
    const size_t here = *at;
    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

static void costs_of(const ek_outlier_args *g, ek_outlier_report *report) {
    const ek_outlier_weights *w = g->weights;
    const double m = (double)g->m, n = (double)w->n, k = (double)w->k, o = (double)report->outliers;
    const double sums = m * n * (double)(w->group ? w->k / w->group : 0);
    report->split_cost = m * n * (k * BYTE_COST + o) + sums * MERGE_COST + m * k * QUANTIZE_COST +
                         (m + n) * o * GATHER_COST + (w->is_int4 ? n * k * UNPACK_COST : 0);
    report->float_cost = m * n * k + n * k * DEQUANTIZE_COST;
}

static int path_of(const ek_outlier_args *g, const ek_outlier_report *report) {
    if (g->path != EK_OUTLIER_AUTO)
        return g->path;
    if (report->float_cost < report->split_cost)
        return EK_OUTLIER_FLOAT;
    return report->outliers ? EK_OUTLIER_SPLIT : EK_OUTLIER_INT8;
}

/* The integer product of `rows` rows of a group, without its operands and result. */
static ek_gemm_args product_of(const ek_outlier_args *g, long rows) {
    const ek_outlier_weights *w = g->weights;
    return (ek_gemm_args){
        .dtype = ek_outlier_dtype(),
        .b_packed = 1,
        .m = rows,
        .n = w->n,
        .k = w->group,
        .a_row = w->k,
        .a_col = 1,
        .b_row = w->n,
        .b_col = 1,
        .c_row = g->y_row,
        .c_col = 1,
        .epilogue = {.output = EK_GEMM_CALLBACK, .callback = ek_outlier_merge_tile},
    };
}

/* A dequantized block of W times the matching part of X. */
static ek_gemm_args float_product(const ek_outlier_args *g, long columns, long depth, long width) {
    return (ek_gemm_args){
        .dtype = EK_GEMM_F32,
        .m = g->m,
        .n = columns,
        .k = depth,
        .a_row = g->half ? depth : g->x_row,
        .a_col = 1,
        .b_row = width,
        .b_col = 1,
        .c_row = g->y_row,
        .c_col = 1,
        .epilogue = {.low_f32 = -__builtin_inff(), .high_f32 = __builtin_inff()},
    };
}

/* Uses the single-threaded tile for any number of threads; otherwise the summation order would
 * vary. */
static ek_gemm_method float_method(const ek_gemm_args *g, int threads) {
    ek_gemm_method how = ek_gemm_default(g->dtype, 1, g->m, g->n, g->k);
    how.split = ek_gemm_default(g->dtype, threads, g->m, g->n, g->k).split;
    how.pack_a = how.pack_b = 0;
    return how;
}

static long rows_at_once(const ek_outlier_args *g, ek_pool *pool) {
    return PACKED ? ek_min(g->m, PACKED_ROWS * ek_pool_threads(pool)) : g->m;
}

/* Width of the columns dequantized together, over all panels. */
static long float_width(const ek_outlier_weights *w) {
    return ek_min(ek_outlier_padded(w->n), FLOAT_WIDTH);
}

/* Panels [panel, panel_end) of W: the columns dequantized together. */
typedef struct {
    long panel, panel_end, column, columns;
} float_columns;

static float_columns columns_from(const ek_outlier_weights *w, const ek_panels *panels, long j) {
    const long widest = (panels->width + (panels->wider > 0)) * EK_VL;
    const long end = ek_min(j + ek_max(float_width(w) / widest, 1), panels->panels);
    const long column = ek_panel_start(panels, j) * EK_VL;
    const long until = ek_min(ek_panel_start(panels, end) * EK_VL, w->n);
    return (float_columns){j, end, column, until - column};
}

/* Maximum scratch over the products of all blocks, which differ in size and therefore in method. */
static size_t float_scratch(const ek_outlier_args *g, int threads) {
    const ek_outlier_weights *w = g->weights;
    const ek_panels panels = ek_outlier_stored_of(w).side.panels;
    const long depths[] = {ek_min(w->k, FLOAT_DEPTH), (w->k - 1) % FLOAT_DEPTH + 1};
    size_t most = 0;
    for (long j = 0; j < panels.panels;) {
        const float_columns at = columns_from(w, &panels, j);
        for (int i = 0; i < 2; i++) {
            const ek_gemm_args product = float_product(g, at.columns, depths[i], float_width(w));
            const ek_gemm_method how = float_method(&product, threads);
            const size_t bytes = ek_gemm_scratch_bytes(&product, &how, threads);
            most = bytes > most ? bytes : most;
        }
        j = at.panel_end;
    }
    return most;
}

static layout plan(const ek_outlier_args *g, ek_pool *pool, ek_outlier_report *report) {
    const ek_outlier_weights *w = g->weights;
    const long o = report->path == EK_OUTLIER_SPLIT ? report->outliers : 0;
    const int threads = ek_pool_threads(pool);
    layout at;
    size_t end = 0;
    take(&end, (size_t)ek_ceil(w->k, 32) * sizeof(uint32_t));
    report->marks = end;
    at.scale = take(&end, (size_t)g->m * sizeof(float));
    at.channels = take(&end, (size_t)o * sizeof(int32_t));
    at.tile = end;
    if (report->path == EK_OUTLIER_FLOAT) {
        const long depth = ek_min(w->k, FLOAT_DEPTH);
        take(&end, (size_t)(depth * float_width(w)) * sizeof(float));
        at.x1 = end;
        take(&end, g->half ? (size_t)(g->m * depth) * sizeof(float) : 0);
        at.x2 = end;
        take(&end, float_scratch(g, threads));
        report->tile = end - report->marks;
        at.bytes = report->bytes = end;
        report->x1 = report->x2 = report->w4 = 0;
        return at;
    }
    const ek_gemm_args product = product_of(g, rows_at_once(g, pool));
    take(&end, w->is_int4 ? ek_outlier_int4_bytes(g, threads)
                          : ek_gemm_scratch_bytes(&product, &g->how, threads));
    report->tile = end - report->marks;
    at.x1 = take(&end, (size_t)(g->m * w->k));
    at.x2 = take(&end, (size_t)(g->m * o) * sizeof(float));
    at.w4 = take(&end, (size_t)(o * ek_outlier_padded(w->n)) * sizeof(float));
    report->x1 = at.x2 - at.x1;
    report->x2 = at.w4 - at.x2;
    report->w4 = end - at.w4;
    at.bytes = report->bytes = end;
    return at;
}

static void list_channels(const uint32_t *marks, long k, int32_t *to) {
    for (long at = 0; at < k; at += 32)
        for (uint32_t word = marks[at / 32]; word; word &= word - 1)
            *to++ = (int32_t)(at + __builtin_ctz(word));
}

static long count_marks(const uint32_t *marks, long k) {
    long count = 0;
    for (long at = 0; at < k; at += 32)
        count += __builtin_popcount(marks[at / 32]);
    return count;
}

static void run_bytes(const ek_outlier_args *g, const layout *at, char *workspace, ek_pool *pool,
                      const ek_outlier_report *report) {
    const ek_outlier_weights *w = g->weights;
    const long o = report->path == EK_OUTLIER_SPLIT ? report->outliers : 0;
    float *scale = (float *)(workspace + at->scale), *x2 = (float *)(workspace + at->x2);
    float *w4 = (float *)(workspace + at->w4);
    uint8_t *x1 = (uint8_t *)(workspace + at->x1);
    int32_t *channels = (int32_t *)(workspace + at->channels);
    /* The tile of row 0 runs before all others of its columns, or is the only one. */
    const int fill = !w->is_int4 && (ek_pool_threads(pool) == 1 || g->m <= g->how.mr);
    ek_outlier_quantize(g, o ? (const uint32_t *)workspace : NULL, x1, scale, pool);
    if (o) {
        list_channels((const uint32_t *)workspace, w->k, channels);
        ek_outlier_split(g, channels, o, x2, fill ? NULL : w4, pool);
    }
    if (w->is_int4) {
        const ek_outlier_merge merge = {.row_scale = scale, .x2 = x2, .w4 = w4, .outliers = o};
        ek_outlier_multiply_int4(g, x1, &merge, workspace + at->tile, pool);
        return;
    }
    const ek_outlier_stored stored = ek_outlier_stored_of(w);
    const long step = rows_at_once(g, pool), groups = w->k / w->group;
    for (long row = 0; row < g->m; row += step) {
        ek_gemm_args product = product_of(g, ek_min(step, g->m - row));
        product.c = g->y + row * g->y_row;
        for (long group = 0; group < groups; group++) {
            const ek_outlier_merge merge = {
                .stored = &stored,
                .channel = channels,
                .row_scale = scale + row,
                .column_scale = w->scale + group * ek_outlier_padded(w->n),
                .excess = w->excess + group * ek_outlier_padded(w->n),
                .x2 = x2 + row * o,
                .w4 = w4,
                .outliers = group ? 0 : o,
                .fill = fill && o && row == 0 && group == 0,
                .add = group > 0,
            };
            product.epilogue.callback_data = &merge;
            product.accumulate = merge.add;
            product.a = x1 + row * w->k + group * w->group;
            product.b = (const char *)w->b + (size_t)group * w->b_bytes;
            ek_gemm_run(&product, &g->how, workspace + at->tile, pool);
        }
    }
}

/* Rows [row, row + rows) of W for some columns: Y (+)= X . W. */
static void run_float_block(const ek_outlier_args *g, const layout *at, char *workspace,
                            ek_pool *pool, const float_columns *of, long row, long rows) {
    const long width = float_width(g->weights);
    float *to = (float *)(workspace + at->tile);
    ek_gemm_args product = float_product(g, of->columns, rows, width);
    ek_outlier_dequantize(
        &(ek_outlier_block){g->weights, of->panel, of->panel_end, row, rows, width, to}, pool);
    product.b = to;
    product.accumulate = row > 0;
    product.c = g->y + of->column;
    product.a = (const float *)g->x + row;
    if (g->half) {
        ek_outlier_widen(g, row, rows, (float *)(workspace + at->x1));
        product.a = workspace + at->x1;
    }
    const ek_gemm_method how = float_method(&product, ek_pool_threads(pool));
    ek_gemm_run(&product, &how, workspace + at->x2, pool);
}

static void run_floats(const ek_outlier_args *g, const layout *at, char *workspace, ek_pool *pool) {
    const long k = g->weights->k;
    const ek_panels panels = ek_outlier_stored_of(g->weights).side.panels;
    for (long j = 0; j < panels.panels;) {
        const float_columns of = columns_from(g->weights, &panels, j);
        for (long row = 0; row < k; row += FLOAT_DEPTH)
            run_float_block(g, at, workspace, pool, &of, row, ek_min(FLOAT_DEPTH, k - row));
        j = of.panel_end;
    }
}

/* Magnitude above which channels are marked; the integer-only path accepts all finite ones. */
static int32_t limit_of(const ek_outlier_args *g) {
    if (g->path >= EK_OUTLIER_INT8)
        return EK_FINITE_BITS;
    int32_t bits;
    memcpy(&bits, &g->threshold, sizeof bits);
    return bits < EK_FINITE_BITS ? bits : EK_FINITE_BITS;
}

/* Marks and counts outliers; may return EK_OUTLIER_NOT_FINITE. */
static int look(const ek_outlier_args *g, uint32_t *marks, ek_pool *pool,
                ek_outlier_report *report) {
    report->outliers = 0;
    if (g->path >= EK_OUTLIER_INT8 && !g->check_finite)
        return EK_OUTLIER_DONE;
    const int bad = ek_outlier_scan(g, limit_of(g), marks, pool);
    if (bad && g->check_finite) {
        ek_outlier_find_bad(g, report);
        return EK_OUTLIER_NOT_FINITE;
    }
    if (g->path < EK_OUTLIER_INT8)
        report->outliers = count_marks(marks, g->weights->k);
    return EK_OUTLIER_DONE;
}

long ek_outlier_mark(const ek_outlier_args *args, uint32_t *marks, ek_pool *pool,
                     ek_outlier_report *report) {
    *report = (ek_outlier_report){0};
    return look(args, marks, pool, report) == EK_OUTLIER_DONE ? report->outliers : -1;
}

/* The pool, or NULL for a product not worth waking its threads: on cores with AMX, two threads were
 * measured to be slower below this. A value of X costs VALUE multiply-adds. */
#define VALUE 400
#define SMALL_OF_AMX 4e7
#define SMALL_OF_FEW 2.5e6
static ek_pool *pool_for(const ek_outlier_args *g, ek_pool *pool) {
    const ek_outlier_weights *w = g->weights;
    const long amx_rows = ek_gemm_families[ek_outlier_dtype()]->operands->amx_rows;
    if (!amx_rows || w->is_int4)
        return pool;
    const double work = (double)g->m * (double)w->k * (double)(w->n + VALUE);
    return work < (g->m >= amx_rows ? SMALL_OF_AMX : SMALL_OF_FEW) ? NULL : pool;
}

int ek_outlier_run(const ek_outlier_args *args, void *workspace, size_t bytes, ek_pool *pool,
                   ek_outlier_report *report) {
    const ek_outlier_args *g = args;
    const size_t marks = (size_t)ek_ceil(g->weights->k, 32) * sizeof(uint32_t);
    *report = (ek_outlier_report){.bytes = marks};
    if (bytes < marks)
        return EK_OUTLIER_MEMORY;
    ek_pool *const worth = pool_for(g, pool);
    if (look(g, workspace, worth, report))
        return EK_OUTLIER_NOT_FINITE;
    costs_of(g, report);
    report->path = path_of(g, report);
    if (report->path != EK_OUTLIER_FLOAT)
        pool = worth;
    if (g->weights->k == 0) {
        for (long row = 0; row < g->m; row++)
            memset(g->y + row * g->y_row, 0, (size_t)g->weights->n * sizeof *g->y);
        return EK_OUTLIER_DONE;
    }
    const layout at = plan(g, pool, report);
    if (bytes < at.bytes)
        return EK_OUTLIER_MEMORY;
    if (report->path == EK_OUTLIER_FLOAT)
        run_floats(g, &at, workspace, pool);
    else
        run_bytes(g, &at, workspace, pool, report);
    return EK_OUTLIER_DONE;
}
