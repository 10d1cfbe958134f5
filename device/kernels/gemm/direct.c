/* Products whose operands are read as they are, in one block of k: no packing, no blocks, no plan.
 * Small ones, of which most of the time would go into planning; and all whose k is small, where
 * most of the work is to write C: it then goes along rows, for as many panels of B as stay in the
 * cache. */
#include "direct.h"
#include "orient.h"

#define STRIP_BYTES 24576 /* of panels of B that stay in a core's first cache */

/* Bytes from one panel to the next, [1]: of the wider ones, which come first. */
typedef struct {
    ek_panels panels;
    long step[2];
} track;

typedef struct {
    ek_gemm_job job; /* what all tiles are told */
    const ek_gemm_operands *types;
    const ek_gemm_column *const *column;
    const char *a, *b;
    char *c;
    track a_track, b_track;
    long n, c_bytes, strip;
    int form, a_packed;
} product;

static long start_of(const track *t, long panel) {
    const long wider = ek_min(panel, t->panels.wider);
    return wider * t->step[1] + (panel - wider) * t->step[0];
}

/* One panel of rows times panels [column, until) of columns. */
static void row_of_tiles(const product *x, ek_gemm_job *job, long i, long column, long until) {
    const long vl = x->types->vl;
    const char *a = x->a + start_of(&x->a_track, i), *b = x->b + start_of(&x->b_track, column);
    ek_gemm_place at = {
        .row = ek_panel_start(&x->a_track.panels, i),
        .rows = ek_panel_width(&x->a_track.panels, i),
        .column = ek_panel_start(&x->b_track.panels, column) * vl,
    };
    char *c = x->c + at.row * job->c_row * x->c_bytes;
    if (x->a_packed)
        job->a_col = at.rows;
    for (long j = column; j < until; j++) {
        const int wider = j < x->b_track.panels.wider;
        const long nv = x->b_track.panels.width + wider;
        int form = x->form;
        at.width = nv * vl;
        at.columns = ek_min(at.width, x->n - at.column);
        job->left = at.columns - at.width + vl;
        if (!job->b_in_place)
            job->b_row = at.width;
        else if (job->left < vl)
            form |= EK_GEMM_MASKED;
        const ek_gemm_tile code = x->column[nv - 1]->codes[form][at.rows];
        char *to = c + at.column * job->c_col * x->c_bytes;
        if (job->c_col != 1 || (at.columns < at.width && !x->types->masked))
            ek_gemm_tile_apart(job, code, a, b, to, &at, x->c_bytes);
        else
            code(job, a, b, to, at.row, at.column);
        b += x->b_track.step[wider];
        at.column += at.width;
    }
}

static void tiles(const product *x, ek_gemm_job *job, long row, long row_end, long column,
                  long column_end) {
    for (long from = column, until; from < column_end; from = until) {
        until = ek_min(from + x->strip, column_end);
        for (long i = row; i < row_end; i++)
            row_of_tiles(x, job, i, from, until);
    }
}

static void by_rows(const void *args, long begin, long end) {
    const product *x = args;
    ek_gemm_job job = x->job;
    tiles(x, &job, begin, end, 0, x->b_track.panels.panels);
}

static void by_columns(const void *args, long begin, long end) {
    const product *x = args;
    ek_gemm_job job = x->job;
    tiles(x, &job, 0, x->a_track.panels.panels, begin, end);
}

/* Packed panels of `bytes` each, or `unit` bytes for each row or vector in place. */
static track track_of(const ek_gemm_operands *types, int side, ek_panels panels, long k, int packed,
                      long unit) {
    if (panels.panels < 2)
        return (track){panels, {0, 0}};
    if (!packed)
        return (track){panels, {panels.width * unit, (panels.width + 1) * unit}};
    const ek_gemm_side s = {types, side, panels};
    const ek_panel_sizes sizes = ek_panel_sizes_of(&s, k);
    return (track){panels, {(long)sizes.bytes[0], (long)sizes.bytes[1]}};
}

int ek_gemm_direct(const ek_gemm_args *args, const ek_gemm_method *how, ek_pool *pool) {
    ek_gemm_args own;
    const ek_gemm_oriented o = ek_gemm_orient(args, how, &own);
    const ek_gemm_args *const g = o.args;
    const ek_gemm_operands *const types = o.family->operands;
    const int b_in_place = !g->b_packed;
    if ((o.a_form < 0 && !g->a_packed) || (g->k > o.kc && !types->whole_k))
        return 0;
    if (b_in_place &&
        (o.pack_b || types->b_form(g) < 0 || (!types->masked && g->n & (types->vl - 1))))
        return 0;
    const ek_panels rows = ek_panels_of(g->m, o.tile.mr);
    const ek_panels columns = ek_panels_of(ek_vectors(types, g->n), o.tile.nv);
    const long strip =
        columns.panels < 2 || rows.panels < 2
            ? columns.panels
            : STRIP_BYTES / ek_max(columns.width * types->vl * types->b_bytes * g->k, 1);
    product x = {
        .job = {.k = g->k,
                .a_row = g->a_row,
                .a_col = g->a_col,
                .b_row = g->b_row,
                .c_row = g->c_row,
                .c_col = g->c_col,
                .b_in_place = b_in_place,
                .load = g->accumulate,
                .finish = 1,
                .epilogue = &g->epilogue},
        .types = types,
        .column = o.family->column,
        .a = g->a,
        .b = g->b,
        .c = g->c,
        .a_track = track_of(types, 0, rows, g->k, g->a_packed, g->a_row * types->a_bytes),
        .b_track = track_of(types, 1, columns, g->k, g->b_packed, types->vl * types->b_bytes),
        .n = g->n,
        .c_bytes = g->epilogue.output == EK_GEMM_QUANTIZE ? 1 : 4,
        .strip = ek_max(strip, 1),
        .form = o.a_form < 0 ? EK_GEMM_PANEL : o.a_form,
        .a_packed = g->a_packed,
    };
    if (!pool) /* copying the job just written takes longer than a small product */
        tiles(&x, &x.job, 0, rows.panels, 0, columns.panels);
    else if (o.by_columns)
        ek_parallel(pool, by_columns, &x, columns.panels, 1);
    else
        ek_parallel(pool, by_rows, &x, rows.panels, 1);
    return 1;
}
