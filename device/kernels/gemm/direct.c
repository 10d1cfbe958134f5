/* Products whose operands are read as given, in one block of k: no packing, no blocks, no plan.
 * Used for small products, where planning would dominate, and for all products with small k, where
 * most of the work is writing C: C is then written along rows, for as many panels of B as stay in
 * the cache. */
#include "direct.h"
#include "x86/prefetch.h"
#include "orient.h"

#define LARGE_B 1048576 /* bytes from which a one-row product reads B row by row */
#define SMALL_K_ROWS                                                                               \
    32 /* rows of an in-place A that a small-k kernel computes before the next panel of B */
#define PIECE 512 /* columns of such a B per task */

/* If C and B together exceed L2, C is written in long runs, along which hardware prefetchers work,
 * and panels of B come from L2. Measured on Intel cores with AMX, with 2 MiB of L2. */
#ifdef EK_AMX
#define NEAR_BYTES 2097152
#else
#define NEAR_BYTES LONG_MAX
#endif
#define LONG_STRIP 524288
#define LONG_STRIP_OF_BYTES 1048576

/* Bytes between consecutive panels; [1] for the wider ones, which come first. */
typedef struct {
    ek_panels panels;
    long step[2];
} track;

typedef struct {
    const ek_gemm_family *family;
    const char *a, *b;
    char *c;
    long n, c_bytes;
    int form, a_packed;
    track rows, columns;
    long strip;             /* column panels per strip; each row multiplies all of them */
    int prefetches_b;       /* of the panel one strip ahead */
    int small_k;            /* k is small enough for kernels that keep B in registers */
    const ek_gemm_job *job; /* arguments common to all tiles */
} product;

static long start_of(const track *t, long panel) {
    const long wider = ek_min(panel, t->panels.wider);
    return wider * t->step[1] + (panel - wider) * t->step[0];
}

/* Runs the tile at a place whose rows, column and width are set. */
static inline __attribute__((always_inline)) void
tile(const product *x, ek_gemm_job *job, ek_gemm_place *at, long nv, const char *a, const char *b) {
    const ek_gemm_operands *types = x->family->operands;
    int form = x->form;
    at->columns = ek_min(at->width, x->n - at->column);
    job->left = at->columns - at->width + types->vl;
    if (!job->b_in_place)
        job->b_row = at->width;
    else if (job->left < types->vl)
        form |= EK_GEMM_MASKED;
    EK_GEMM_ROWS_OF_TILE(job, at->rows);
    const ek_gemm_column *column = x->family->column[nv - 1];
    const ek_gemm_tile kernel = column->kernels[form][at->rows];
    char *c = x->c + (at->row * job->c_row + at->column * job->c_col) * x->c_bytes;
    if (x->small_k)
        column->small_k[job->k](job, a, b, c, (ek_gemm_rows){at->row, at->rows}, at->column);
    else if (job->c_col != 1 || (at->columns < at->width && !types->masked))
        ek_gemm_staged_tile(job, kernel, a, b, c, at, x->c_bytes);
    else
        kernel(job, a, b, c, at->row, at->column);
}

/* Prefetches the column panel one strip after panel j, which is at b. */
static void prefetch_next(const product *x, ek_gemm_job *job, long i, long j, const char *b) {
    const ek_panels *columns = &x->columns.panels;
    const long nv = ek_panel_width(columns, j);
    const ek_gemm_next next = {
        j + x->strip < columns->panels ? b + x->strip * x->columns.step[j < columns->wider] : NULL,
        job->b_in_place ? job->b_row : nv * x->family->operands->vl,
    };
    ek_gemm_prefetch_next(job, &next, i, x->rows.panels.panels, nv);
}

/* Multiplies panels of one vector that follow the one at `column`; returns how many. */
static inline __attribute__((always_inline)) long
panels_at_once(const product *x, const ek_gemm_job *job, const ek_gemm_place *at, long column,
               long until, const char *a, const char *b) {
    const ek_panels *all = &x->columns.panels;
    const long partial = until == all->panels && (x->n & (x->family->operands->vl - 1));
    if (!EK_GEMM_AT_ONCE || all->width != 1 || all->wider)
        return 0;
    char *c = x->c + (at->row * job->c_row + at->column) * x->c_bytes;
    return ek_gemm_panels_at_once(x->family->column[0], job, x->form, a, at->rows, b,
                                  x->columns.step[0], until - column - partial, c);
}

/* One row panel times column panels [column, until). Inlined: with two tiles, passing the arguments
 * takes a tenth of the time. */
static inline __attribute__((always_inline)) void row_of_tiles(const product *x, ek_gemm_job *job,
                                                               long i, long column, long until) {
    const long vl = x->family->operands->vl;
    const char *a = x->a + start_of(&x->rows, i), *b = x->b + start_of(&x->columns, column);
    ek_gemm_place at = {
        .row = ek_panel_start(&x->rows.panels, i),
        .rows = ek_panel_width(&x->rows.panels, i),
        .column = ek_panel_start(&x->columns.panels, column) * vl,
    };
    if (x->a_packed)
        job->a_col = at.rows;
    const long done = panels_at_once(x, job, &at, column, until, a, b);
    b += done * x->columns.step[0], at.column += done * vl;
    for (long j = column + done; j < until; j++) {
        const int wider = j < x->columns.panels.wider;
        const long nv = x->columns.panels.width + wider;
        at.width = nv * vl;
        if (x->prefetches_b)
            prefetch_next(x, job, i, j, b);
        tile(x, job, &at, nv, a, b);
        b += x->columns.step[wider];
        at.column += at.width;
    }
}

static void tiles(const product *x, ek_gemm_job *job, long row, long row_end, long column,
                  long column_end) {
    EK_GEMM_BEGIN(job, NULL);
    for (long from = column, until; from < column_end; from = until) {
        until = ek_min(from + x->strip, column_end);
        for (long i = row; i < row_end; i++)
            row_of_tiles(x, job, i, from, until);
    }
    EK_GEMM_END();
}

static void by_rows(const void *args, long begin, long end) {
    const product *x = args;
    ek_gemm_job job = *x->job;
    tiles(x, &job, begin, end, 0, x->columns.panels.panels);
}

static void by_columns(const void *args, long begin, long end) {
    const product *x = args;
    ek_gemm_job job = *x->job;
    tiles(x, &job, 0, x->rows.panels.panels, begin, end);
}

/* Steps of `bytes` per packed panel, or in place `unit` bytes per row or vector. */
static void set_steps(track *t, const ek_gemm_operands *types, int side, long k, int packed,
                      long unit) {
    if (packed) {
        const ek_gemm_side s = {types, side, t->panels};
        const ek_panel_sizes sizes = ek_panel_sizes_of(&s, k);
        t->step[0] = (long)sizes.bytes[0], t->step[1] = (long)sizes.bytes[1];
    } else {
        t->step[0] = t->panels.width * unit, t->step[1] = t->step[0] + unit;
    }
}

/* Columns [begin, end) of a row, in pieces. */
static void by_pieces(const void *args, long begin, long end) {
    const product *x = args;
    const long column = begin * PIECE, until = ek_min(end * PIECE, x->n);
    const ek_gemm_operands *types = x->family->operands;
    types->row(x->job, x->a, x->b + column * types->b_bytes, x->c + column * x->c_bytes,
               until - column, column);
}

static int is_long_row(const ek_gemm_oriented *o) {
    const ek_gemm_args *g = o->args;
    const ek_gemm_operands *types = o->family->operands;
    return g->m == 1 && types->row && !g->b_packed && g->b_col == 1 && g->c_col == 1 &&
           (g->a_packed || g->a_col == 1) && g->k * g->n * types->b_bytes >= LARGE_B;
}

/* Whether the product o can run directly. */
static int is_direct(const ek_gemm_oriented *o) {
    const ek_gemm_args *g = o->args;
    const ek_gemm_operands *types = o->family->operands;
    if ((o->a_form < 0 && !g->a_packed) || (g->k > o->kc && !types->full_k))
        return 0;
    const int full = types->masked || !(g->n & (types->vl - 1));
    return g->b_packed || (!o->pack_b && types->b_form(g) >= 0 && full);
}

static int is_small_k(const ek_gemm_oriented *o) {
    const ek_gemm_args *g = o->args;
    return g->k > 0 && g->k <= EK_GEMM_SMALL_K && g->c_col == 1 && !g->accumulate &&
           o->family->column[o->tile.nv - 1]->small_k[g->k];
}

int ek_gemm_direct(const ek_gemm_args *args, const ek_gemm_method *how, ek_pool *pool) {
    ek_gemm_args own;
    ek_gemm_oriented o = ek_gemm_orient(args, how, &own);
    const int long_row = is_long_row(&o);
    if (!long_row && !is_direct(&o))
        return 0;
    const ek_gemm_args *const g = o.args;
    const ek_gemm_operands *const types = o.family->operands;
    const long vectors = ek_vectors(types, g->n);
    ek_gemm_job job = {
        .k = g->k,
        .a_row = g->a_row,
        .a_col = g->a_col,
        .b_row = g->b_row,
        .c_row = g->c_row,
        .c_col = g->c_col,
        .b_in_place = !g->b_packed,
        .load = g->accumulate,
        .finish = ek_gemm_finishes(&g->epilogue),
        .epilogue = &g->epilogue,
    };
    product x;
    x.family = o.family;
    x.a = g->a, x.b = g->b, x.c = g->c;
    x.n = g->n;
    x.c_bytes = g->epilogue.output == EK_GEMM_QUANTIZE ? 1 : 4;
    x.form = o.a_form < 0 ? EK_GEMM_PANEL : o.a_form;
    x.job = &job;
    if (long_row) {
        ek_parallel(pool, by_pieces, &x, ek_ceil(g->n, PIECE), 1);
        return 1;
    }
    x.small_k = is_small_k(&o);
    if (x.small_k && g->a_packed)
        job.a_row = 1;
    else if (x.small_k)
        o.tile.mr = SMALL_K_ROWS;
    if (g->m <= o.tile.mr && vectors <= o.tile.nv) {
        ek_gemm_place at = {.rows = g->m, .width = vectors * types->vl};
        job.a_col = g->a_packed ? g->m : g->a_col;
        EK_GEMM_BEGIN(&job, NULL);
        tile(&x, &job, &at, vectors, x.a, x.b);
        EK_GEMM_END();
        return 1;
    }
    x.a_packed = g->a_packed;
    x.columns.panels = ek_panels_of(vectors, o.tile.nv);
    set_steps(&x.columns, types, 1, g->k, g->b_packed, types->vl * types->b_bytes);
    x.prefetches_b = ek_gemm_prefetches_b(g, types, g->k);
    if (g->m <= o.tile.mr && !pool &&
        !x.prefetches_b) { /* a single row of tiles: nothing else to plan */
        x.rows = (track){{1, g->m, 0}, {0}};
        EK_GEMM_BEGIN(&job, NULL);
        row_of_tiles(&x, &job, 0, 0, x.columns.panels.panels);
        EK_GEMM_END();
        return 1;
    }
    x.rows.panels = ek_panels_of(g->m, o.tile.mr);
    set_steps(&x.rows, types, 0, g->k, g->a_packed, g->a_row * types->a_bytes);
    const long panel = x.columns.panels.width * types->vl * types->b_bytes * g->k;
    const int wide =
        (g->m * x.c_bytes + g->k * types->b_bytes) * g->n > NEAR_BYTES && !x.prefetches_b;
    const long most = types->b_bytes == 1 ? LONG_STRIP_OF_BYTES : LONG_STRIP;
    x.strip = ek_max((wide ? most : EK_GEMM_STRIP_BYTES) / ek_max(panel, 1), 1);
    x.job = &job;
    if (!pool) /* copying the job just written costs more than a small product */
        tiles(&x, &job, 0, x.rows.panels.panels, 0, x.columns.panels.panels);
    else if (o.by_columns)
        ek_parallel(pool, by_columns, &x, x.columns.panels.panels, 1);
    else
        ek_parallel(pool, by_rows, &x, x.rows.panels.panels, 1);
    return 1;
}
