/* The loop nest of every product, which calls the packing functions and register tiles of
 * microkernels.h:
 *
 *   for blocks of nc columns, for blocks of kc of k:
 *     pack B
 *     for blocks of mc rows:
 *       pack A
 *       for panels of B, for panels of A:
 *         register tile
 *
 * Threads share the panels of a block, of its rows or its columns, through ek_parallel. */
#include "x86/prefetch.h"
#include "direct.h"
#include "plan.h"

/* The current block, constant while threads work on it. */
typedef struct {
    const ek_gemm_plan *plan;
    char *a, *b, *tail; /* packed panels starting at a_first, b_first; the last panel of B */
    long a_first, b_first;
    ek_panel_sizes a_sizes, b_sizes;
    long row, row_end, column, column_end; /* ranges, in panels */
    long a_rows;                           /* rows of the single panel of a block of A */
    long k_from, k;
    int load, finish;
    long *registers; /* AMX configuration that packing and tiles share; NULL: one per task */
} block;

static const char *in_place(const void *base, long row, long row_step, long column,
                            long column_step, int bytes) {
    return (const char *)base + (row * row_step + column * column_step) * bytes;
}

static void pack_a_panels(const void *args, long begin, long end) {
    const block *x = args;
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    for (long i = x->row + begin; i < x->row + end; i++) {
        long row = ek_panel_start(&p->a.panels, i), width = ek_panel_width(&p->a.panels, i);
        p->types->pack_a(in_place(g->a, row, g->a_row, x->k_from, g->a_col, p->types->a_bytes),
                         g->a_row, g->a_col, width, width, x->k,
                         x->a + ek_panels_bytes(&p->a, &x->a_sizes, x->a_first, i));
    }
}

/* Packs a block's rows, a few vectors at a time. */
static void pack_a_one_panel(const void *args, long begin, long end) {
    const block *x = args;
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    const long step = EK_GEMM_ONE_PANEL_VECTORS * p->types->vl;
    const long first = ek_panel_start(&p->a.panels, x->row);
    const long rows = ek_panel_start(&p->a.panels, x->row_end) - first;
    for (long i = begin; i < end; i++) {
        const long width = ek_min(rows - i * step, step);
        p->types->pack_a_one_panel(
            in_place(g->a, first + i * step, g->a_row, x->k_from, g->a_col, p->types->a_bytes),
            g->a_col, width, ek_vectors(p->types, width), x->a_rows, x->k,
            x->a + i * step * p->types->a_row_bytes);
    }
}

static void pack_b_panel(const block *x, long j, char *to) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    const long vl = p->types->vl;
    long column = ek_panel_start(&p->b.panels, j) * vl, vectors = ek_panel_width(&p->b.panels, j);
    p->types->pack_b(in_place(g->b, x->k_from, g->b_row, column, g->b_col, p->types->b_bytes),
                     g->b_col, g->b_row, ek_min(vectors * vl, g->n - column), vectors, x->k, to);
}

/* Packs panels [begin, end), reading along the rows of B. */
static void pack_side_by_side(const block *x, long begin, long end, char *to) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    const ek_panels *all = &p->b.panels;
    const long column = ek_panel_start(all, begin) * p->types->vl;
    const ek_gemm_panels panels = {
        .count = end - begin,
        .vectors = all->width,
        .wider = all->wider - begin,
        .bytes = {x->b_sizes.bytes[0], x->b_sizes.bytes[1]},
        .values_only = p->types->amx_rows && p->a.panels.width >= p->types->amx_rows,
        .registers = x->registers,
        .rows = p->a.panels.width + (p->a.panels.wider > 0),
    };
    p->types->pack_b_side_by_side(
        in_place(g->b, x->k_from, g->b_row, column, g->b_col, p->types->b_bytes), g->b_row,
        g->n - column, &panels, x->k, to);
}

static void pack_b_panels(const void *args, long begin, long end) {
    const block *x = args;
    if (x->plan->types->pack_b_side_by_side && x->plan->args->b_col == 1) {
        begin += x->column, end += x->column;
        pack_side_by_side(x, begin, end,
                          x->b + ek_panels_bytes(&x->plan->b, &x->b_sizes, x->b_first, begin));
        return;
    }
    for (long j = x->column + begin; j < x->column + end; j++)
        pack_b_panel(x, j, x->b + ek_panels_bytes(&x->plan->b, &x->b_sizes, x->b_first, j));
}

/* Tiles of one panel of B at b, with the micro-kernels for its width. */
static void tile_column(const block *x, ek_gemm_job *job, const ek_gemm_tile *kernels,
                        const char *b, ek_gemm_place at, const ek_gemm_next *next, long row,
                        long row_end) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    const ek_panels *panels = &p->a.panels;
    const int packed = p->a_form < 0;
    const long first = row, lines = at.width * p->types->b_bytes / EK_GEMM_LINE_BYTES;
    const int staged = g->c_col != 1 || (!p->types->masked && at.columns < at.width);
    const long a_step = p->a_one_panel ? p->types->a_row_bytes : g->a_row * p->types->a_bytes;
    const long c_step = g->c_row * p->c_bytes;
    at.row = ek_panel_start(panels, row);
    const char *a;
    if (p->a_one_panel)
        a = x->a + (at.row - ek_panel_start(panels, x->a_first)) * p->types->a_row_bytes;
    else if (packed)
        a = x->a + ek_panels_bytes(&p->a, &x->a_sizes, x->a_first, row);
    else
        a = in_place(g->a, at.row, g->a_row, x->k_from, g->a_col, p->types->a_bytes);
    char *c = (char *)g->c + at.column * g->c_col * p->c_bytes + at.row * c_step;
    for (; row < row_end; row++) {
        const int wider = row < panels->wider;
        at.rows = ek_min(panels->width + wider, g->m - at.row);
        job->a_col = p->a_one_panel ? x->a_rows : packed ? at.rows : g->a_col;
        EK_GEMM_ROWS_OF_TILE(job, at.rows);
        ek_gemm_prefetch_next(job, next, row - first, row_end - first, lines);
        if (staged)
            ek_gemm_staged_tile(job, kernels[at.rows], a, b, c, &at, p->c_bytes);
        else
            kernels[at.rows](job, a, b, c, at.row, at.column);
        a += packed && !p->a_one_panel ? (long)x->a_sizes.bytes[wider] : at.rows * a_step;
        c += at.rows * c_step;
        at.row += at.rows;
    }
}

/* What to prefetch while panel j of B is used, which is at b and `width` columns wide: its
 * neighbor, or if panels are copied one at a time, the source of the next copy. */
static ek_gemm_next next_panel(const block *x, long j, const char *b, long column, long width) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    const int bytes = p->types->b_bytes;
    if (!p->prefetches_b || (p->pack_b && p->columns_per_block > 1))
        return (ek_gemm_next){NULL, 0};
    if (g->b_packed)
        return (ek_gemm_next){b + ek_panels_bytes(&p->b, &x->b_sizes, j, j + 1), width};
    const long deeper = x->k_from + x->k;
    const char *rows = b + width * bytes;
    if (p->pack_b)
        rows = deeper < g->k ? in_place(g->b, deeper, g->b_row, column, 1, bytes)
                             : in_place(g->b, 0, g->b_row, column + width, 1, bytes);
    return (ek_gemm_next){rows, g->b_row};
}

/* All tiles of panel j of B. */
static void panel_of_tiles(const block *x, ek_gemm_job *job, long j, long row, long row_end) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    const long vl = p->types->vl;
    const long nv = ek_panel_width(&p->b.panels, j);
    ek_gemm_place at = {.column = ek_panel_start(&p->b.panels, j) * vl, .width = nv * vl};
    at.columns = ek_min(at.width, g->n - at.column);
    job->left = at.columns - at.width + vl;
    const char *b;
    int form = p->a_form < 0 ? EK_GEMM_PANEL : p->a_form;
    job->b_row = at.width;
    job->b_in_place = 0;
    if (g->b_packed || p->pack_b) {
        b = x->b + ek_panels_bytes(&p->b, &x->b_sizes, x->b_first, j);
    } else if (p->pack_tail && j == p->b.panels.panels - 1) {
        b = x->tail;
    } else {
        b = in_place(g->b, x->k_from, g->b_row, at.column, g->b_col, p->types->b_bytes);
        job->b_row = g->b_row;
        job->b_in_place = 1;
        form |= job->left < vl ? EK_GEMM_MASKED : 0;
    }
    const ek_gemm_next next = next_panel(x, j, b, at.column, at.width);
    tile_column(x, job, p->family->column[nv - 1]->kernels[form], b, at, &next, row, row_end);
}

#if EK_GEMM_AT_ONCE
/* Multiplies packed panels of B that follow the one at `from` by rows of tiles; returns how many.
 */
static long panels_at_once(const block *x, ek_gemm_job *job, long from, long until, long row,
                           long row_end) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    const ek_panels *all = &p->b.panels, *rows = &p->a.panels;
    const int in_place_b = !g->b_packed && !p->pack_b, packed = p->a_form < 0;
    if (all->width != 1 || all->wider || in_place_b || p->a_one_panel)
        return 0;
    job->b_in_place = 0;
    const long vl = p->types->vl;
    const char *b = x->b + ek_panels_bytes(&p->b, &x->b_sizes, x->b_first, from);
    long count = until - from - (until == all->panels && (g->n & (vl - 1)));
    for (; row < row_end && count; row++) {
        const long first = ek_panel_start(rows, row), height = ek_panel_width(rows, row);
        const char *a =
            packed ? x->a + ek_panels_bytes(&p->a, &x->a_sizes, x->a_first, row)
                   : in_place(g->a, first, g->a_row, x->k_from, g->a_col, p->types->a_bytes);
        char *c = (char *)g->c + (first * g->c_row + from * vl * g->c_col) * p->c_bytes;
        job->a_col = packed ? height : g->a_col;
        count =
            ek_gemm_panels_at_once(p->family->column[0], job, packed ? EK_GEMM_PANEL : p->a_form, a,
                                   height, b, (long)x->b_sizes.bytes[0], count, c);
    }
    return count;
}
#endif

/* Panels of A per panel of B; 1 for AMX. Fewer if rows of C are a multiple of a page apart and
 * share an L1 set. */
#define ROWS_OF_STRIP 8
#define ROWS_OF_STRIP_PAGED 2

/* If panels of B are small, C is written along its rows, for as many panels as stay in the
 * cache. */
static void tiles(const block *x, long row, long row_end, long column, long column_end) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    ek_gemm_job job = {
        .k = x->k,
        .a_row = g->a_row,
        .c_row = g->c_row,
        .c_col = g->c_col,
        .load = x->load,
        .finish = x->finish,
        .epilogue = &g->epilogue,
    };
    EK_GEMM_BEGIN(&job, x->registers);
    const long width = ek_max(p->b.panels.width, 1) * p->types->vl;
    const long strip = EK_GEMM_STRIP_BYTES / (ek_max(x->k, 1) * width * p->types->b_bytes);
    const int few = g->c_row * p->c_bytes % EK_GEMM_PAGE ? ROWS_OF_STRIP : ROWS_OF_STRIP_PAGED;
    const long rows = strip <= 1 ? row_end - row : p->uses_amx ? 1 : few;
    for (long from = column, until; from < column_end; from = until) {
        until = ek_min(from + ek_max(strip, 1), column_end);
        for (long i = row; i < row_end; i += rows) {
            long j = from;
#if EK_GEMM_AT_ONCE
            j += panels_at_once(x, &job, from, until, i, ek_min(i + rows, row_end));
#endif
            for (; j < until; j++)
                panel_of_tiles(x, &job, j, i, ek_min(i + rows, row_end));
        }
    }
    EK_GEMM_END();
}

static void tiles_by_row(const void *args, long begin, long end) {
    const block *x = args;
    tiles(x, x->row + begin, x->row + end, x->column, x->column_end);
}

static void tiles_by_column(const void *args, long begin, long end) {
    const block *x = args;
    tiles(x, x->row, x->row_end, x->column + begin, x->column + end);
}

/* Each thread multiplies the panels of B that it has packed, because they are in its cache. */
static void pack_and_tile(const void *args, long begin, long end) {
    const block *x = args;
    pack_b_panels(x, begin, end);
    tiles(x, 0, x->plan->a.panels.panels, x->column + begin, x->column + end);
}

static void pack_a_block(block *x, ek_pool *pool) {
    const ek_gemm_plan *p = x->plan;
    const ek_panels *all = &p->a.panels;
    if (!p->a_one_panel) {
        ek_parallel(pool, pack_a_panels, x, x->row_end - x->row, 1);
        return;
    }
    const long rows = ek_panel_start(all, x->row_end) - ek_panel_start(all, x->row);
    const ek_gemm_args *g = p->args;
    if (p->types->pack_a_narrow && rows == g->m && g->a_col == rows &&
        p->types->pack_a_narrow(g->a, rows, x->k, x->a)) {
        x->a_rows = rows;
        return;
    }
    const long vectors = ek_vectors(p->types, rows);
    x->a_rows = vectors * p->types->vl;
    ek_parallel(pool, pack_a_one_panel, x, ek_ceil(vectors, EK_GEMM_ONE_PANEL_VECTORS), 1);
}

/* All row blocks for the current block of columns and k. */
static void row_blocks(block *x, ek_pool *pool) {
    const ek_gemm_plan *p = x->plan;
    const long panels = p->a.panels.panels;
    for (x->row = 0; x->row < panels; x->row = x->row_end) {
        x->row_end = ek_min(x->row + p->rows_per_block, panels);
        if (p->pack_a) {
            x->a_first = x->row;
            pack_a_block(x, pool);
        }
        if (p->by_columns)
            ek_parallel(pool, tiles_by_column, x, x->column_end - x->column, 1);
        else
            ek_parallel(pool, tiles_by_row, x, x->row_end - x->row, 1);
    }
}

/* All blocks of k for columns [x->column, x->column_end). */
static void depth_blocks(block *x, ek_pool *pool) {
    const ek_gemm_plan *p = x->plan;
    const ek_gemm_args *g = p->args;
    size_t a_done = 0, b_done = 0;
    for (long d = 0; d < p->depths.count; d++) {
        x->k_from = d * p->depths.depth;
        x->k = ek_depth_at(&p->depths, g->k, d);
        x->load = d > 0 || g->accumulate;
        x->finish = d == p->depths.count - 1 && ek_gemm_finishes(&g->epilogue);
        if (p->a_form < 0)
            x->a_sizes = ek_panel_sizes_of(&p->a, x->k);
        if (g->b_packed || p->pack_b)
            x->b_sizes = ek_panel_sizes_of(&p->b, x->k);
        if (g->a_packed) {
            x->a = (char *)g->a + a_done;
            a_done += ek_panels_bytes(&p->a, &x->a_sizes, 0, p->a.panels.panels);
        }
        if (g->b_packed) {
            x->b = (char *)g->b + b_done;
            b_done += ek_panels_bytes(&p->b, &x->b_sizes, 0, p->b.panels.panels);
        }
        if (p->pack_b) {
            const int at_once =
                pool && !p->pack_a && p->by_columns && p->rows_per_block >= p->a.panels.panels;
            x->b_first = x->column;
            ek_parallel(pool, at_once ? pack_and_tile : pack_b_panels, x, x->column_end - x->column,
                        1);
            if (at_once)
                continue;
        } else if (p->pack_tail && x->column_end == p->b.panels.panels) {
            pack_b_panel(x, x->column_end - 1, x->tail);
        }
        row_blocks(x, pool);
    }
}

#define DOT_COLUMNS 32 /* columns per task */

static void dots(const void *args, long begin, long end) {
    const ek_gemm_plan *p = args;
    const ek_gemm_args *g = p->args;
    const long column = begin * DOT_COLUMNS, until = ek_min(end * DOT_COLUMNS, g->n);
    const ek_gemm_job job = {
        .k = g->k,
        .c_col = g->c_col,
        .load = g->accumulate,
        .finish = ek_gemm_finishes(&g->epilogue),
        .epilogue = &g->epilogue,
    };
    p->types->dot(&job, g->a, in_place(g->b, 0, 0, column, g->b_col, p->types->b_bytes), g->b_col,
                  (char *)g->c + column * g->c_col * p->c_bytes, until - column, column);
}

void ek_gemm_run(const ek_gemm_args *args, const ek_gemm_method *how, void *scratch,
                 ek_pool *pool) {
    if (args->m <= 0 || args->n <= 0)
        return;
    const int threads = pool ? ek_gemm_threads(args, ek_pool_threads(pool)) : 1;
    if (threads < 2)
        pool = NULL;
    if (ek_gemm_direct(args, how, pool))
        return;
    ek_gemm_plan plan;
    ek_gemm_make_plan(&plan, args, how, threads);
    if (plan.dot) {
        ek_parallel(pool, dots, &plan, ek_ceil(plan.args->n, DOT_COLUMNS), 1);
        return;
    }
    const ek_gemm_workspace workspace = ek_gemm_workspace_of(&plan);
    long registers = 0;
    block x = {
        .plan = &plan, .b = scratch, .registers = pool || !plan.uses_amx ? NULL : &registers};
    x.a = x.b + workspace.b;
    x.tail = x.a + workspace.a;
    const long panels = plan.b.panels.panels;
    for (x.column = 0; x.column < panels; x.column = x.column_end) {
        x.column_end = ek_min(x.column + plan.columns_per_block, panels);
        depth_blocks(&x, pool);
    }
    EK_GEMM_RELEASE(registers);
}
