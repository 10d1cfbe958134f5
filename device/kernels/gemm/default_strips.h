/* The part of default.c for panels of a B of floats in place, or packed in rows or strips. */
#ifndef EK_GEMM_DEFAULT_STRIPS_H
#define EK_GEMM_DEFAULT_STRIPS_H

/* The k of panels if cores in order pack complete rows of B; 0: they pack strips. */
static int64_t depth_of_rows(product p) {
    const int64_t half = EK_L1_BYTES / 2 / (8 * EK_VECTOR_LANES);
    int whole = p.m >= RULE_IN_ORDER_WHOLE && p.k <= half && is_far(p);
    if (p.k <= 2 * RULE_ROWS_DEPTH || 32 * p.k * p.n > (int64_t)EK_L2_BYTES * 5)
        return p.k > 2 * RULE_ROWS_DEPTH && whole ? half : 0;
    return least(half, (int64_t)EK_L2_BYTES * 3 / 8 / (4 * p.n));
}

/* The maximum k of a panel of floats in place: what L1 holds of lines that several row tiles, or on
 * a core with EK_F32_PACKS_BOTH several panels, read. */
static int64_t most_in_place(shape s, product p) {
    if (shares_rows(s, p))
        return most(depth_in_place(s.nr, p.n, 4), RULE_LEAST_DEPTH);
    int several = EK_F32_PACKS_BOTH && p.n > s.nr && 2 * p.k > 3 * RULE_ROWS_DEPTH;
    return several && is_beyond_l1(p) ? RULE_ROWS_DEPTH : RULE_LARGEST;
}

/* Columns of a strip: a quarter of L2, or for a `flat` one 3/8 or, beyond few rows, half of L3. */
static int64_t strip_columns(int64_t kc, int flat, int few) {
    int64_t bytes = !flat ? EK_L2_BYTES / 4
                    : few ? (int64_t)EK_L2_BYTES * 3 / 8
                          : (int64_t)EK_L3_BYTES / 2;
    return bytes / (4 * kc);
}
#endif
