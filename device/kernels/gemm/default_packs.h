/* The part of default.c for floats of both operands that are packed. */
#ifndef EK_GEMM_DEFAULT_PACKS_H
#define EK_GEMM_DEFAULT_PACKS_H

/* The k up to which a panel of floats in place fills half of the lines of L1 that it can use. */
static int64_t depth_in_place(int64_t nr, int64_t n, int64_t size) {
    int64_t distance = size * n, apart = least(distance & -distance, RULE_PAGE), row = size * nr;
    int64_t lines = apart >= RULE_LINE ? round_up(row, RULE_LINE) : row + RULE_UNALIGNED;
    return EK_L1_BYTES / 2 / most(lines, apart);
}

/* Whether B is one of floats beyond L1. */
static int is_beyond_l1(product p) {
    return p.f32 && 4 * p.k * p.n > EK_L1_BYTES;
}

/* Whether packing a few rows of floats pays, for a B in place that fills L1. */
static int packs_few_rows(shape s, product p) {
    int few = p.m <= EK_F32_PACKED_ROWS && p.n >= RULE_IN_ORDER_COLUMNS && !is_transposed(s);
    return few && p.f32 && 4 * p.k * p.n >= EK_L1_BYTES && !p.a_packed && !p.b_packed;
}

/* Whether panels of both operands pay, of two vectors of B, for enough rows of floats: the fewer,
 * the more rows of B in place share sets of L1. */
static int packs_both(shape s, product p) {
    int is_tile = s.nr == 2 * EK_VECTOR_LANES && s.mr == f32_tiles[1].mr;
    if (!EK_F32_PACKS_BOTH || p.a_packed || p.b_packed || !is_tile || !is_beyond_l1(p))
        return 0;
    int64_t depth = depth_in_place(s.nr, p.n, 4);
    int64_t enough = p.k > depth ? depth * 3 / 8 : 8 * EK_F32_PACKS_BOTH;
    return p.m >= most(EK_F32_PACKS_BOTH, enough);
}
#endif
