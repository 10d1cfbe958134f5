/* Turns a product and a method into a plan: which operands are swapped, packed or read in place. */
#include "plan.h"
#include "x86/prefetch.h"
#include "orient.h"

/* Number of 8-bit multiply-adds not worth waking a thread for: they are faster on AVX-512, and even
 * more so with AMX. */
#ifdef EK_AMX
#define SMALL_OF_BYTES 8388608
#elif defined __AVX512VNNI__
#define SMALL_OF_BYTES 1048576
#else
#define SMALL_OF_BYTES EK_GEMM_SHARED
#endif

static ek_gemm_side side_of(const ek_gemm_operands *types, int side, long extent,
                            ek_gemm_shape shape) {
    ek_panels panels =
        side ? ek_panels_of(ek_vectors(types, extent), shape.nv) : ek_panels_of(extent, shape.mr);
    return (ek_gemm_side){types, side, panels};
}

/* Panels in a block of `size` lines, kc deep. If k is never split, a deeper block keeps the same
 * number of elements. */
static long panels_in(const ek_gemm_plan *p, long size, long kc, long extent, long panel,
                      const ek_panels *all) {
    if (p->types->full_k && p->args->k > kc)
        size = (long)((int64_t)size * kc / p->args->k);
    return size >= extent ? ek_max(all->panels, 1) : ek_max(size / panel, 1);
}

/* Whether a B in place, of one panel, is like a packed one: its rows have the panel's width. */
static int is_panel(const ek_gemm_args *g, const ek_gemm_operands *types, const ek_panels *panels) {
    return panels->panels == 1 && g->n == panels->width * types->vl && g->b_row == g->n;
}

void ek_gemm_make_plan(ek_gemm_plan *p, const ek_gemm_args *args, const ek_gemm_method *how,
                       int threads) {
    const ek_gemm_oriented o = ek_gemm_orient(args, how, &p->own);
    const ek_gemm_args *g = p->args = o.args;
    const ek_gemm_shape shape = o.tile;
    p->family = o.family;
    const ek_gemm_operands *types = p->types = p->family->operands;
    p->a_form = o.a_form;
    p->a = side_of(types, 0, g->m, shape);
    p->b = side_of(types, 1, g->n, shape);
    p->depths = ek_depths_of(types, g->k, o.kc);
    p->rows_per_block = panels_in(p, o.mc, o.kc, g->m, shape.mr, &p->a.panels);
    p->columns_per_block = panels_in(p, o.nc, o.kc, g->n, shape.nv * types->vl, &p->b.panels);
    p->by_columns = o.by_columns;
    if (threads > 1) /* each thread needs all of the other operand: larger blocks reduce waiting */
        p->rows_per_block = p->a.panels.panels;

    p->pack_a = !g->a_packed && p->a_form < 0;
    p->uses_amx = types->amx_rows && p->a.panels.width + (p->a.panels.wider > 0) >= types->amx_rows;
    p->a_one_panel =
        p->pack_a && types->pack_a_one_panel && g->a_row == 1 && g->m > 1 && !p->uses_amx;
    p->pack_b =
        !g->b_packed && (types->b_form(g) < 0 || (o.pack_b && !is_panel(g, types, &p->b.panels)));
    if (!p->pack_a && !g->a_packed && shape.nv == 2 && shape.mr == types->whole_rows)
        p->a.panels = ek_whole_panels_of(g->m, shape.mr);
    p->pack_tail = !g->b_packed && !p->pack_b && !types->masked && g->n & (types->vl - 1);
    p->dot = types->dot && g->m == 1 && !g->a_packed && !g->b_packed && g->a_col == 1 &&
             g->b_row == 1 && g->b_col != 1;
    p->prefetches_b = ek_gemm_prefetches_b(g, types, p->depths.depth);
    p->c_bytes = g->epilogue.output == EK_GEMM_QUANTIZE ? 1 : 4;
}

int ek_gemm_threads(const ek_gemm_args *g, int threads) {
    const double least = g->dtype == EK_GEMM_F32 ? EK_GEMM_SHARED : SMALL_OF_BYTES;
    return (double)g->m * (double)g->n * (double)g->k < least ? 1 : threads;
}

static size_t at_most(const ek_gemm_side *side, long panels, long k) {
    ek_panel_sizes sizes = ek_panel_sizes_of(side, k);
    return (size_t)ek_min(panels, side->panels.panels) *
           (sizes.bytes[1] > sizes.bytes[0] ? sizes.bytes[1] : sizes.bytes[0]);
}

/* Size of a block of rows as a single panel of full vectors. */
static size_t one_panel_bytes(const ek_gemm_plan *p, long k) {
    const long rows = ek_min(p->rows_per_block * (p->a.panels.width + 1), p->args->m);
    return p->types->a_panel(ek_vectors(p->types, rows) * p->types->vl, k);
}

ek_gemm_workspace ek_gemm_workspace_of(const ek_gemm_plan *p) {
    const long k = p->depths.depth;
    ek_gemm_workspace workspace = {0};
    if (p->dot)
        return workspace;
    workspace.a = p->a_one_panel ? one_panel_bytes(p, k)
                  : p->pack_a    ? at_most(&p->a, p->rows_per_block, k)
                                 : 0;
    workspace.b = p->pack_b ? at_most(&p->b, p->columns_per_block, k) : 0;
    workspace.tail = p->pack_tail ? at_most(&p->b, 1, k) : 0;
    return workspace;
}

size_t ek_gemm_scratch_bytes(const ek_gemm_args *args, const ek_gemm_method *how, int threads) {
    ek_gemm_plan plan;
    ek_gemm_make_plan(&plan, args, how, ek_gemm_threads(args, threads));
    ek_gemm_workspace workspace = ek_gemm_workspace_of(&plan);
    return workspace.a + workspace.b + workspace.tail;
}

const char *ek_gemm_tiles(int dtype) {
    return ek_gemm_families[dtype] ? ek_gemm_families[dtype]->tiles : "";
}
