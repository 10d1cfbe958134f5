/* First decision for every product: compute C or its transpose, and with which tile. */
#ifndef EK_GEMM_ORIENT_H
#define EK_GEMM_ORIENT_H
#include "blocks.h"

#define EK_GEMM_WIDE 8 /* vectors per tile for products with one row or column */

typedef struct {
    const ek_gemm_args *args; /* as given, or swapped and tidied in the caller's memory */
    const ek_gemm_family *family;
    ek_gemm_shape tile;
    int a_form; /* form of an in-place A; -1: panels, packed beforehand or now */
    long mc, kc, nc;
    int pack_a, pack_b; /* as the method requests */
    int by_columns;     /* threads share columns */
} ek_gemm_oriented;

/* C' = B' . A': columns become rows. */
static inline void ek_gemm_swap(ek_gemm_args *to, const ek_gemm_args *g) {
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

/* A stride that is never used may take its fastest value. */
static inline const ek_gemm_args *ek_gemm_tidy(const ek_gemm_args *g, ek_gemm_args *own) {
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

static inline ek_gemm_oriented ek_gemm_orient(const ek_gemm_args *args, const ek_gemm_method *how,
                                              ek_gemm_args *own) {
    const int packed = args->a_packed || args->b_packed;
    const ek_gemm_family *const given = ek_gemm_families[args->dtype];
    ek_gemm_oriented o = {.mc = how->mc, .kc = how->kc, .nc = how->nc};
    long mr = how->mr, nr = how->nr;
    if (args->n == 1 && args->m > 1 && !packed) /* regardless of the method, which may be a
                                                   neighbor's */
        mr = EK_GEMM_WIDE * given->operands->vl, nr = 1;
    const int is_transposed = ek_gemm_is_transposed(given, mr, nr);
    o.pack_a = how->pack_a, o.pack_b = how->pack_b, o.by_columns = how->split;
    if (is_transposed || (!packed && args->m > 1 && args->c_row == 1 && args->c_col != 1)) {
        ek_gemm_swap(own, args);
        args = own;
        o.pack_a = how->pack_b, o.pack_b = how->pack_a, o.by_columns = !how->split;
        if (is_transposed) {
            const long rows = mr;
            mr = nr, nr = rows;
            o.mc = how->nc, o.nc = how->mc;
        }
    }
    o.args = ek_gemm_tidy(args, own);
    o.family = ek_gemm_families[o.args->dtype];
    o.a_form = o.args->a_packed || o.pack_a ? -1 : o.family->operands->a_form(o.args);
    o.by_columns |= o.args->m == 1;
    o.tile = ek_gemm_nearest(o.family, mr, nr);
    if (o.a_form >= 0) {
        const ek_gemm_tile *kernels = o.family->column[o.tile.nv - 1]->kernels[o.a_form];
        while (o.tile.mr > 1 && !kernels[o.tile.mr])
            o.tile.mr--;
    }
    return o;
}
#endif
