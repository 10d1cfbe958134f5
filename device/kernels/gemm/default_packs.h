/* The part of default.c for floats of both operands that are packed. */
#ifndef EK_GEMM_DEFAULT_PACKS_H
#define EK_GEMM_DEFAULT_PACKS_H

static int is_beyond_l1(product p) {
    return p.f32 && !p.a_packed && !p.b_packed && 4 * p.k * p.n > EK_L1_BYTES;
}

/* Whether packing a few rows of floats pays, for a B beyond L1 in place. */
static int packs_few_rows(shape s, product p) {
    int few = p.m <= EK_F32_PACKED_ROWS && p.n >= RULE_IN_ORDER_COLUMNS;
    return few && is_beyond_l1(p) && !is_transposed(s);
}

/* Whether panels of both operands pay, of two vectors of B, for enough rows of floats. */
static int packs_both(shape s, product p) {
    int is_tile = s.nr == 2 * EK_VECTOR_LANES && s.mr == f32_tiles[1].mr;
    return EK_F32_PACKS_BOTH && p.m >= EK_F32_PACKS_BOTH && is_tile && is_beyond_l1(p);
}
#endif
