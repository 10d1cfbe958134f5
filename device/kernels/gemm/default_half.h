/* The part of default.c for products of f16: the rule of the host's
 * compiler/costs/methods/half_product.py. */
#ifndef EK_GEMM_DEFAULT_HALF_H
#define EK_GEMM_DEFAULT_HALF_H

static const tile half_tiles[] = {EK_HALF_TILES};

/* Tiles of some rows: full ones, then one of four, and others of two and one. */
static int64_t tiles_of(int64_t rows, int64_t mr) {
    int64_t last = rows % mr;
    return rows / mr + (last >= 4) + parts(last < 8 ? last % 4 : last - 4, 2);
}

/* Columns of B that are not in complete panels are packed in any case. */
static int64_t half_cost(tile t, int packs, product p, int threads) {
    const int64_t nr = t.nv * EK_HALF_LANES, vectors = parts(p.n, EK_HALF_LANES);
    const int64_t panels = parts(p.n, nr), bands = parts(p.m, EK_PACKED_ROWS);
    const int64_t last = (p.m - 1) % EK_PACKED_ROWS + 1;
    const int64_t tiles = (bands - 1) * tiles_of(EK_PACKED_ROWS, t.mr) + tiles_of(last, t.mr);
    const int64_t packed = packs ? vectors : vectors - p.n / nr * t.nv;
    int64_t cost = tiles * (vectors + RULE_HALF_STEP * panels) + RULE_HALF_PACKED * bands * packed;
    if (least(p.k, EK_HALF_SUMS) > depth_in_place(nr, p.n, 2))
        cost += RULE_HALF_CROWDED * (packs ? bands : tiles) * panels;
    cost += RULE_HALF_STORED * p.m * panels / p.k;
    return cost * parts(bands * panels, threads) / (bands * panels);
}

static ek_gemm_method half_default(product p, int threads) {
    tile best = {0};
    int best_packs = 0;
    int64_t least_cost = INT64_MAX;
    for (size_t i = sizeof half_tiles / sizeof *half_tiles; i-- > 0;)
        for (int packs = 0; packs < 2; packs++) {
            const int64_t cost = half_cost(half_tiles[i], packs, p, threads);
            if (cost < least_cost)
                least_cost = cost, best = half_tiles[i], best_packs = packs;
        }
    const int32_t mr = (int32_t)best.mr, nr = (int32_t)(best.nv * EK_HALF_LANES);
    return (ek_gemm_method){EK_PACKED_ROWS, EK_HALF_SUMS, nr, mr, nr, 0, (uint8_t)best_packs, 0};
}
#endif
