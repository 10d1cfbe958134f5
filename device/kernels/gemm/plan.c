/* From a product and a method to a plan: which operands are swapped, packed or read in place. */
#include "plan.h"

#define SMALL 131072 /* multiply-adds that are not worth waking a thread for */

#define WIDE 8 /* vectors of a product with one row or column */

/* C' = B' . A': what is columns becomes rows. */
static void swap(ek_gemm_args *to, const ek_gemm_args *g) {
    *to = *g;
    if (g->dtype == EK_GEMM_U8)
        to->dtype = EK_GEMM_S8U8;
    to->m = g->n, to->n = g->m;
    to->a = g->b, to->b = g->a;
    to->a_packed = g->b_packed, to->b_packed = g->a_packed;
    to->a_row = g->b_col, to->a_col = g->b_row;
    to->b_row = g->a_col, to->b_col = g->a_row;
    to->c_row = g->c_col, to->c_col = g->c_row;
    to->epilogue.per_row = !g->epilogue.per_row;
}

/* A stride that is never taken may as well be the best one. */
static const ek_gemm_args *tidy(const ek_gemm_args *g, ek_gemm_args *own) {
    if (g->n != 1 && g->k > 1)
        return g;
    if (g != own)
        *own = *g;
    if (own->n == 1)
        own->b_col = own->c_col = 1;
    if (own->k <= 1)
        own->a_col = 1;
    return own;
}

static ek_gemm_side side_of(const ek_gemm_operands *types, int side, long extent,
                            ek_gemm_shape shape) {
    ek_panels panels =
        side ? ek_panels_of(ek_vectors(types, extent), shape.nv) : ek_panels_of(extent, shape.mr);
    return (ek_gemm_side){types, side, panels};
}

/* Panels of a block of `size` elements. */
static long panels_in(long size, long extent, long panel, const ek_panels *all) {
    return size >= extent ? ek_max(all->panels, 1) : ek_max(size / panel, 1);
}

/* The method of a swapped product in terms of its operands as they then are. */
static ek_gemm_method turned(const ek_gemm_method *how, int tile_too) {
    ek_gemm_method t = *how;
    if (tile_too) {
        t.mr = how->nr, t.nr = how->mr;
        t.mc = how->nc, t.nc = how->mc;
    }
    t.pack_a = how->pack_b, t.pack_b = how->pack_a;
    t.split = !how->split;
    return t;
}

void ek_gemm_make_plan(ek_gemm_plan *p, const ek_gemm_args *args, const ek_gemm_method *method,
                       int threads) {
    const int packed = args->a_packed || args->b_packed;
    const ek_gemm_family *const given = ek_gemm_families[args->dtype];
    ek_gemm_method how = *method;
    if (args->n == 1 && args->m > 1 && !packed) /* whatever the method is: it may be a neighbor's */
        how.mr = WIDE * given->operands->vl, how.nr = 1;
    const int is_turned = ek_gemm_is_turned(given, &how);
    if (is_turned || (!packed && args->m > 1 && args->c_row == 1 && args->c_col != 1)) {
        swap(&p->own, args);
        args = &p->own;
        how = turned(&how, is_turned);
    }
    const ek_gemm_args *g = p->args = tidy(args, &p->own);
    p->family = ek_gemm_families[g->dtype];
    const ek_gemm_operands *types = p->types = p->family->operands;
    p->a_form = g->a_packed || how.pack_a ? -1 : types->a_form(g);
    ek_gemm_shape shape = ek_gemm_nearest(p->family, how.mr, how.nr);
    if (p->a_form >= 0)
        while (shape.mr > 1 && !p->family->column[shape.nv - 1]->codes[p->a_form][shape.mr])
            shape.mr--;
    p->a = side_of(types, 0, g->m, shape);
    p->b = side_of(types, 1, g->n, shape);
    p->depths = ek_depths_of(types, g->k, how.kc);
    p->rows_per_block = panels_in(how.mc, g->m, shape.mr, &p->a.panels);
    p->columns_per_block = panels_in(how.nc, g->n, shape.nv * types->vl, &p->b.panels);
    p->by_columns = how.split || g->m == 1;
    if (threads > 1) /* every thread needs all of the other operand: larger blocks, fewer waits */
        p->rows_per_block = p->a.panels.panels;

    p->pack_a = !g->a_packed && p->a_form < 0;
    p->pack_b = !g->b_packed && (how.pack_b || types->b_form(g) < 0);
    p->pack_tail = !g->b_packed && !p->pack_b && !types->masked && g->n & (types->vl - 1);
    p->dot = types->dot && g->m == 1 && !g->a_packed && !g->b_packed && g->a_col == 1 &&
             g->b_row == 1 && g->b_col != 1;
    p->c_bytes = g->epilogue.output == EK_GEMM_QUANTIZE ? 1 : 4;
}

int ek_gemm_threads(const ek_gemm_args *g, int threads) {
    return (double)g->m * (double)g->n * (double)g->k < SMALL ? 1 : threads;
}

static size_t at_most(const ek_gemm_side *side, long panels, long k) {
    ek_panel_sizes sizes = ek_panel_sizes_of(side, k);
    return (size_t)ek_min(panels, side->panels.panels) *
           (sizes.bytes[1] > sizes.bytes[0] ? sizes.bytes[1] : sizes.bytes[0]);
}

ek_gemm_room ek_gemm_room_of(const ek_gemm_plan *p) {
    const long k = p->depths.depth;
    ek_gemm_room room = {0};
    if (p->dot)
        return room;
    room.a = p->pack_a ? at_most(&p->a, p->rows_per_block, k) : 0;
    room.b = p->pack_b ? at_most(&p->b, p->columns_per_block, k) : 0;
    room.tail = p->pack_tail ? at_most(&p->b, 1, k) : 0;
    return room;
}

size_t ek_gemm_scratch_bytes(const ek_gemm_args *args, const ek_gemm_method *how, int threads) {
    ek_gemm_plan plan;
    ek_gemm_make_plan(&plan, args, how, ek_gemm_threads(args, threads));
    ek_gemm_room room = ek_gemm_room_of(&plan);
    return room.a + room.b + room.tail;
}

const char *ek_gemm_tiles(int dtype) {
    return ek_gemm_families[dtype] ? ek_gemm_families[dtype]->tiles : "";
}
