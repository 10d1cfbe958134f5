/* ek_gemm_default: derives a method from the shape, the register tiles and the cache sizes only.
 *
 * The rule is documented at analytic_method in the host's compiler/costs/methods/gemm.py, and a
 * test compares the two. Compile-time parameters: EK_L1_BYTES, EK_L2_BYTES, EK_L3_BYTES (all
 * nonzero), EK_VECTOR_LANES, EK_F32_TILES and EK_I8_TILES: {height, vectors}, ... for 1, 2, ...
 * vectors; EK_I8_VECTORS: rows above which 8-bit tiles use AMX, 0: never; EK_I8_STEP: of k;
 * EK_I8_OWN_ROWS: of the tile of one vector with code of its own, 0: none; EK_F32_LANES: vector
 * registers of a float tile in place, 0: no limit; EK_F32_COPIES: whether copied float panels beat
 * strided rows; EK_F32_PACKED_ROWS and _PACKS_BOTH: packed_rows and packs_both of ProductCosts;
 * EK_F32_PACK_ROWS: row tiles from which a B beyond L1 is packed, 0: never; EK_F32_FAR_BYTES: from
 * which a B is packed in strips if A has EK_F32_STRIP_ROWS rows, 0: never; EK_HALF_TILES,
 * EK_HALF_LANES: of products of f16, one of each if the core has none; EK_F32_LINE_TILE: whether
 * tiles are then one line wide; EK_F32_IN_ORDER: whether f32_in_order.h's is a candidate;
 * EK_F32_COSTS, EK_I8_COSTS: {...}, ... by kind of tile; RULE_*: rule.py.
 */
#include "../kernel.h"
#include "gemm.h"

enum { LONG = EK_VECTOR_LANES >= RULE_LONG_VECTORS };

typedef struct {
    int64_t mr, nv;
} tile;
typedef struct {
    int64_t mr, nr;
} shape;

static const tile f32_tiles[] = {EK_F32_TILES}, i8_tiles[] = {EK_I8_TILES};

static int64_t parts(int64_t extent, int64_t part) {
    return (extent + part - 1) / part;
}
static int64_t round_up(int64_t value, int64_t step) {
    return parts(value, step) * step;
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The extent, or the size of its equal parts, as few as the limit allows. */
static int64_t equal_parts(int64_t extent, int64_t limit, int64_t step) {
    int64_t most = limit / step * step, count = parts(extent, most < step ? step : most);
    return count == 1 ? extent : round_up(parts(extent, count), step);
}

/* Fields as described for TileCosts in kb/targets/isa.py. */
typedef struct {
    int64_t product, wide, line, vector, far, late, group, panel, crossing, passing, masked,
        packing, crowded, tile, spilled, segment, paged, torn, stored, partial, element, start;
} costs;

enum { NORMAL, TRANSPOSED, AMX, IN_ORDER };
/* No core has AMX and a tile of cores in order: their costs are in the same place. */
enum { KINDS = 3 };
static const costs costs_of[2][KINDS] = {{EK_F32_COSTS}, {EK_I8_COSTS}};

typedef struct {
    int64_t m, n, k;
    int f32, a_packed, b_packed;
} product;

/* Products saved if a panel's last vector holds a single column: one product serves all rows. */
static int64_t one_column_savings(shape s, int64_t m, int64_t n) {
    int64_t vectors = parts(n, EK_VECTOR_LANES);
    if (EK_VECTOR_LANES < RULE_WIDE_VECTORS || n % EK_VECTOR_LANES != 1 ||
        vectors <= parts(vectors, s.nr / EK_VECTOR_LANES))
        return 0;
    return m - parts(m, s.mr);
}

static int is_transposed(shape s) {
    return s.nr % EK_VECTOR_LANES != 0;
}

/* Whether float panels are read from strided rows of B on a core where that is slow. */
static int reads_rows(shape s, product p) {
    return EK_F32_COPIES && p.f32 && !p.b_packed && !is_transposed(s) && p.k >= RULE_PASS_DEPTH &&
           p.n >= RULE_TRANSPOSED_COLUMNS;
}

/* Whether each of these panels is copied just before it is multiplied. */
static int copies_panels(shape s, product p) {
    int64_t rows = 4 * p.n % RULE_PAGE ? RULE_COPIED_ROWS : RULE_COPIED_PAGES;
    return p.m >= rows && 4 * p.k * p.n > EK_L2_BYTES / 2 && reads_rows(s, p);
}

/* Cost of reading or packing a B that was not packed beforehand. */
static int64_t cost_of_b(const costs *of, shape s, product p) {
    int transposed = is_transposed(s);
    int64_t vectors = parts(p.n, EK_VECTOR_LANES);
    if (p.f32) {
        if (transposed || EK_VECTOR_LANES < RULE_WIDE_VECTORS || 4 * p.k * p.n > EK_L3_BYTES ||
            p.k < RULE_PASS_DEPTH || p.n < RULE_TRANSPOSED_COLUMNS || copies_panels(s, p))
            return of->group * vectors;
        return of->passing * least(parts(p.m, s.mr), RULE_FEW_PASSES) * vectors;
    }
    if (transposed)
        return of->group * vectors + of->panel * parts(vectors, RULE_TRANSPOSED_AT_ONCE);
    int64_t panels = parts(p.n, s.nr), nv = parts(vectors, panels);
    int64_t crossing = panels > 1 && nv * EK_VECTOR_LANES % RULE_LINE ? of->crossing : 0;
    int64_t groups = EK_I8_VECTORS && vectors == 1 ? RULE_ALONE : vectors;
    return of->group * groups +
           (of->panel * parts(nv, RULE_TRANSPOSED_AT_ONCE) + crossing) * panels;
}

/* Whether rows of A share sets of L1 or come from beyond L2. */
static int are_far_apart(product p) {
    return 4 * p.k % RULE_ROWS_APART == 0 || 4 * p.m * p.k > EK_L2_BYTES;
}

static int64_t cost_of_a(const costs *of, shape s, product p) {
    if (is_transposed(s)) {
        int64_t row = of->packing + (p.f32 && are_far_apart(p) ? of->crowded : 0);
        return row * round_up(p.m, EK_VECTOR_LANES);
    }
    if (!LONG)
        return 0;
    int64_t pointers = !p.f32 && least(s.mr, p.m) > RULE_POINTED ? p.m : 0;
    int64_t distance = (p.f32 ? 4 : 1) * p.k, apart = least(distance & -distance, RULE_PAGE);
    int64_t sharing_a_set = most(parts(least(s.mr, p.m) * apart, RULE_PAGE) - RULE_WAYS, 0) * p.m;
    return 4 * (sharing_a_set + pointers) * parts(p.n, s.nr);
}

/* The tile of rows in place by packed panels that a core in order has its own code for. */
static int is_in_order(shape s, product p) {
    return EK_F32_IN_ORDER && p.f32 && !p.a_packed && s.mr == RULE_IN_ORDER_ROWS &&
           s.nr == 2 * EK_VECTOR_LANES;
}

/* A tile uses AMX if its panels, with rows split evenly, are taller than those for vectors. */
static int kind_of(shape s, product p) {
    if (is_in_order(s, p))
        return IN_ORDER;
    if (is_transposed(s))
        return TRANSPOSED;
    return !p.f32 && EK_I8_VECTORS && parts(p.m, parts(p.m, s.mr)) > EK_I8_VECTORS ? AMX : NORMAL;
}

/* Whether a panel of B stays in registers, for any number of rows of an in-place A. */
static int is_small_k(shape s, product p) {
    return LONG && p.f32 && !p.a_packed && !is_transposed(s) && p.k <= RULE_SMALL_K &&
           (p.k + 1) * (s.nr / EK_VECTOR_LANES) + 1 <= RULE_REGISTERS;
}

/* Rows of a float tile in place, limited by the registers that keep their values. */
static int64_t rows_in_place(int64_t mr, int64_t nv) {
    return EK_F32_LANES ? least(mr, (EK_F32_LANES - 1) / (nv + 1)) : mr;
}

/* Whether registers do not hold the operands of the next step too: F32_AHEAD, F32_ROWS_AHEAD. */
static int is_late(int64_t rows, int64_t nv, int panel) {
    if (panel)
        return rows * nv + 2 * (parts(rows, RULE_AHEAD_LANES) + nv) > RULE_REGISTERS;
    return rows * nv + rows + 2 * nv > RULE_REGISTERS + 1;
}

/* Cost per k; for bytes, per four of k. */
static int64_t tile_cost(shape s, product p) {
    int kind = kind_of(s, p), transposed = kind == TRANSPOSED;
    const costs *of = &costs_of[!p.f32][least(kind, KINDS - 1)];
    int64_t depth = p.f32 ? p.k : parts(round_up(p.k, EK_I8_STEP), RULE_GROUP);
    int64_t lines = transposed ? p.n : p.m, across = transposed ? p.m : p.n;
    int64_t height = transposed ? s.nr : is_small_k(s, p) ? RULE_SMALL_K_ROWS : s.mr;
    int64_t width = transposed ? s.mr : s.nr;
    if (p.f32 && !p.a_packed && !transposed && !is_small_k(s, p))
        height = rows_in_place(height, width / EK_VECTOR_LANES);
    int64_t vectors = parts(across, EK_VECTOR_LANES);
    int64_t rows = parts(lines, height), panels = parts(vectors, width / EK_VECTOR_LANES);
    int64_t products = most(lines * vectors, of->wide * rows * panels);
    int64_t rows_each = parts(lines, rows);
    if (kind == AMX)
        products = rows * (rows_each > RULE_REGISTER_ROWS ? 2 * RULE_REGISTER_ROWS : rows_each) *
                   vectors * round_up(depth, RULE_REGISTER_GROUPS) / depth;
    else if (p.a_packed && !transposed)
        products -= one_column_savings(s, p.m, p.n);
    int is_far = rows > 1 && p.k * width * (p.f32 ? 4 : 1) > EK_L1_BYTES / 2;
    int64_t vector = of->vector + (is_far ? of->far : 0);
    int64_t nv = parts(vectors, panels);
    int late = p.f32            ? is_late(rows_each, nv, p.a_packed || transposed)
               : EK_I8_OWN_ROWS ? rows_each != EK_I8_OWN_ROWS || nv != 1
                                : 2 * rows_each * nv * EK_VECTOR_LANES > RULE_REGISTERS;
    int is_crowded = p.f32 && !p.a_packed && !transposed && rows_each > RULE_FOLLOWED;
    int64_t line = of->line + (is_crowded && are_far_apart(p) ? of->crowded : 0);
    int64_t tile = of->tile + ((rows_each + 1) * nv >= RULE_REGISTERS ? of->spilled : 0);
    int is_paged = !transposed && p.n * RULE_SUM_BYTES % RULE_PAGE == 0;
    int is_torn = !transposed && panels > 1 && RULE_SUM_BYTES * p.m * p.n > EK_L2_BYTES &&
                  nv * EK_VECTOR_LANES * RULE_SUM_BYTES % RULE_LINE;
    int64_t segment = of->segment + (is_paged ? of->paged : 0) + (is_torn ? of->torn : 0);
    int64_t stores = tile * rows * panels + segment * panels * lines +
                     of->stored * lines * vectors + of->element * lines * across + of->start +
                     (across % EK_VECTOR_LANES ? of->partial * lines : 0);
    int is_masked = p.f32 && !p.b_packed && !transposed && across % EK_VECTOR_LANES;
    int64_t masked = is_masked ? of->masked * (vectors - (panels - 1) * nv) : 0;
    int64_t cost = of->product * products + line * panels * lines + vector * rows * vectors +
                   of->late * late * (p.f32 ? rows * panels : lines * vectors) + masked * rows +
                   stores / depth;
    return cost + (p.b_packed ? 0 : cost_of_b(of, s, p)) +
           (p.a_packed || kind == AMX ? 0 : cost_of_a(of, s, p));
}

#include "default_packs.h"

/* 1: threads share columns: those of normal tiles whose panels they pack, unless splitting rows
 * cuts the busiest thread's work below 3/4; otherwise they share rows, unless splitting columns
 * does, or, for floats in place, makes no fewer pieces and at most 4/3 of that work. */
static int split_of(shape s, product p, int threads) {
    if (threads < 2)
        return 0;
    int64_t rows = parts(p.m, s.mr), panels = parts(p.n, s.nr);
    int64_t by_rows = parts(rows, threads) * panels, by_panels = parts(panels, threads) * rows;
    int packs = p.f32 ? copies_panels(s, p) || packs_both(s, p) : !(EK_I8_VECTORS && p.b_packed);
    const int measured = EK_F32_FAR_BYTES && EK_VECTOR_LANES == RULE_STRIP_LANES;
    int finer = measured && !is_transposed(s) && !p.b_packed && panels >= rows;
    if (is_transposed(s) || !packs)
        return (finer && 3 * by_panels <= 4 * by_rows) || 4 * by_panels < 3 * by_rows;
    return 4 * by_rows >= 3 * by_panels;
}

/* Cost of the busiest thread. */
static int64_t shared_cost(shape s, product p, int threads) {
    int64_t alone = tile_cost(s, p);
    if (threads < 2)
        return alone;
    int64_t tiles = split_of(s, p, threads) ? parts(p.n, s.nr) : parts(p.m, s.mr);
    return alone / tiles * parts(tiles, threads);
}

/* Tile number i: the tiles as they are, then transposed; transposed tiles never use AMX. */
static shape shape_of(const tile *tiles, size_t count, size_t i) {
    if (i < count)
        return (shape){tiles[i].mr, tiles[i].nv * EK_VECTOR_LANES};
    tile t = tiles[i - count];
    if (tiles == i8_tiles && EK_I8_VECTORS)
        t.mr = least(t.mr, EK_I8_VECTORS);
    return (shape){t.nv * EK_VECTOR_LANES, t.mr - (t.mr % EK_VECTOR_LANES == 0)};
}

static int is_far(product p) {
    return EK_F32_FAR_BYTES && 4 * p.k * p.n >= EK_F32_FAR_BYTES;
}

/* Whether a B from beyond the last cache is read in place, for so few rows. */
static int reads_far_rows(product p) {
    int wide = p.n >= (int64_t)(sizeof f32_tiles / sizeof *f32_tiles) * EK_VECTOR_LANES;
    return EK_VECTOR_LANES == RULE_STRIP_LANES && p.m < EK_F32_STRIP_ROWS && wide && is_far(p);
}

/* Whether several row tiles read several panels of floats of a B larger than half of L1. */
static int shares_rows(shape s, product p) {
    int several = p.m > s.mr && p.n > s.nr && !is_transposed(s) && 8 * p.k * p.n > EK_L1_BYTES;
    return EK_F32_PACK_ROWS && p.f32 && several && !reads_far_rows(p);
}

/* Whether panels in place share so few sets of L1 that they had to be too short. */
static int is_crowded(shape s, product p) {
    return EK_F32_PACK_ROWS && least(p.k, RULE_LEAST_DEPTH) > depth_in_place(s.nr, p.n, 4);
}

/* Whether B is packed in strips: beyond the last cache, or beyond L2 if panels share sets. */
static int packs_strips_of_floats(shape s, product p, int threads) {
    if (!p.f32 || p.b_packed || threads > 1)
        return 0;
    int several = p.n > s.nr && !is_transposed(s);
    if (several && is_far(p) && p.m >= EK_F32_STRIP_ROWS)
        return 1;
    int is_near = 4 * p.k * p.n >= EK_L2_BYTES && shares_rows(s, p);
    return is_near && !EK_F32_IN_ORDER && is_crowded(s, p);
}

/* Whether the tile of cores in order is a candidate. */
static int may_be_in_order(product p, int threads) {
    int shared =
        p.m >= RULE_IN_ORDER_ROWS && p.m * p.n >= RULE_IN_ORDER_SUMS && p.n >= RULE_IN_ORDER_NARROW;
    int wide = p.n >= RULE_IN_ORDER_COLUMNS;
    return EK_F32_IN_ORDER && p.f32 && !p.a_packed && p.k >= RULE_IN_ORDER_DEPTH &&
           (p.b_packed ? wide : threads < 2 && (shared || (wide && is_far(p))));
}

static shape cheapest(const tile *tiles, size_t count, product p, int threads) {
    if (p.f32 && !p.b_packed && reads_far_rows(p))
        return shape_of(tiles, count, count - 1);
    if (packs_both(shape_of(tiles, count, 1), p))
        return shape_of(tiles, count, 1);
    shape best = shape_of(tiles, count, 0);
    int near = EK_F32_COPIES && p.f32 && 4 * p.k * p.n <= EK_L2_BYTES / 2;
    int64_t columns = near ? RULE_TRANSPOSED_FLOATS : RULE_TRANSPOSED_COLUMNS;
    const int has_own = may_be_in_order(p, threads);
    int transposed = !has_own && EK_VECTOR_LANES > 1 && p.n < columns && (p.f32 || p.a_packed);
    for (size_t i = 1; i < count * (transposed ? 2 : 1); i++) {
        shape other = shape_of(tiles, count, i);
        if (shared_cost(other, p, threads) < shared_cost(best, p, threads))
            best = other;
    }
    const shape own = {RULE_IN_ORDER_ROWS, 2 * EK_VECTOR_LANES};
    int strips = packs_strips_of_floats(best, p, threads);
    int crowded = !p.b_packed && 8 * p.k * p.n > EK_L1_BYTES && is_crowded(best, p);
    if (has_own &&
        (strips || crowded || shared_cost(own, p, threads) < shared_cost(best, p, threads)))
        return own;
    for (size_t i = 0; EK_F32_LINE_TILE && strips && i < count * (transposed ? 2 : 1); i++)
        if (shape_of(tiles, count, i).nr == RULE_LINE / 4)
            return shape_of(tiles, count, i);
    return best;
}

/* Whether enough row tiles use a B of floats that is too large for its cache. */
static int packs_floats(shape s, product p) {
    int64_t rows = parts(p.m, s.mr), bytes = 4 * p.k * p.n, many = EK_F32_PACK_ROWS;
    if (rows >= RULE_PACK_ROWS && bytes > EK_L2_BYTES)
        return 1;
    if (is_crowded(s, p))
        return shares_rows(s, p) && rows >= many && bytes > EK_L1_BYTES;
    return shares_rows(s, p) && rows >= many * (bytes > EK_L1_BYTES ? 2 : RULE_MANY_PASSES);
}

#include "default_strips.h"

static ek_gemm_method blocks(shape s, product p, int threads) {
    int64_t size = p.f32 ? 4 : 1, m = p.m, n = p.n, k = p.k, width = is_transposed(s) ? s.mr : s.nr;
    int64_t sharing = is_transposed(s) ? parts(n, s.nr) : parts(m, s.mr);
    int64_t depth = LONG || sharing <= RULE_FEW_PANELS
                        ? (int64_t)EK_L2_BYTES / 2 / (width * size)
                        : (int64_t)EK_L1_BYTES * 7 / 8 / ((s.mr + s.nr) * size);
    int copies = copies_panels(s, p);
    int64_t bytes = k * n * size, in_l1 = (int64_t)EK_L1_BYTES * 3 / 4 / (s.nr * size);
    int streamed = parts(m, s.mr) <= RULE_FEW_TILES && bytes > EK_L2_BYTES;
    if (bytes > EK_L2_BYTES / 2 && reads_rows(s, p))
        depth = least(depth, streamed ? RULE_STREAMS : copies ? in_l1 : RULE_ROWS_DEPTH);
    int own = is_in_order(s, p) && !p.b_packed;
    int strips = !own && packs_strips_of_floats(s, p, threads);
    int both = packs_both(s, p), packs = own || strips || both || !p.f32 || packs_floats(s, p);
    int flat = strips && EK_F32_LINE_TILE && k > RULE_STRIP_DEPTH, few = m <= RULE_FLAT_ROWS;
    int64_t deep = own ? depth_of_rows(p) : 0;
    if (own)
        depth = deep ? deep : least(depth, RULE_ROWS_DEPTH * (k > 2 * RULE_ROWS_DEPTH ? 1 : 2));
    int crowded = strips && is_crowded(s, p);
    if (strips)
        depth = least(depth, crowded       ? RULE_ROWS_DEPTH
                             : flat && few ? RULE_FLAT_DEPTH
                                           : RULE_STRIP_DEPTH);
    if (!packs && !p.b_packed)
        depth = least(depth, most_in_place(s, p));
    int64_t kc = equal_parts(k, depth, RULE_K_STEP);
    int64_t mc = equal_parts(m, EK_L2_BYTES / (own && !deep ? 16 : 2) / (kc * size), s.mr);
    int64_t most_columns = (p.f32 || threads > 1 ? EK_L3_BYTES : EK_L2_BYTES) / 2 / (kc * size);
    if (copies)
        most_columns = threads < 2 ? s.nr : RULE_PANELS_EACH * threads * s.nr;
    if (!p.f32 && EK_I8_VECTORS && threads < 2 && !p.b_packed && k * n > EK_L2_BYTES / 4)
        most_columns = most(EK_L2_BYTES / 16 / k, RULE_STRIP_COLUMNS);
    if (crowded)
        most_columns = round_up(RULE_PAGE / 2 / 4, s.nr);
    else if (strips || (own && !deep))
        most_columns = most(strip_columns(kc, flat, few), RULE_STRIP_COLUMNS);
    int64_t nc = equal_parts(n, most_columns, s.nr);
    uint8_t pack_a = both || (!packs && threads < 2 && packs_few_rows(s, p));
    uint8_t pack_b = packs || copies;
    return (ek_gemm_method){
        (int32_t)mc,   (int32_t)kc, (int32_t)nc, (int32_t)s.mr,
        (int32_t)s.nr, pack_a,      pack_b,      (uint8_t)split_of(s, p, threads)};
}

#include "default_half.h"

ek_gemm_method ek_gemm_default(int dtype, int threads, long m, long n, long k) {
    int a_packed = (dtype & EK_GEMM_A_PACKED) != 0, b_packed = (dtype & EK_GEMM_B_PACKED) != 0;
    const int type = dtype & ~(EK_GEMM_A_PACKED | EK_GEMM_B_PACKED), f32 = type == EK_GEMM_F32;
    const tile *tiles = f32 ? f32_tiles : i8_tiles;
    size_t count = (f32 ? sizeof f32_tiles : sizeof i8_tiles) / sizeof *tiles;
    int64_t rows = most(least(m, RULE_LARGEST), 1), columns = most(least(n, RULE_LARGEST), 1);
    int64_t depth = most(least(k, RULE_LARGEST), 1);
    threads = (double)rows * (double)columns * (double)depth < EK_GEMM_SHARED ? 1 : threads;
    const product p = {rows, columns, depth, f32, a_packed, b_packed};
    if (type == EK_GEMM_F16)
        return half_default(p, threads);
    ek_gemm_method unblocked = {(int32_t)rows, (int32_t)depth, (int32_t)columns, 1, 1, 0, 0, 0};
    if (columns == 1 && (f32 || !b_packed)) {
        unblocked.mr = RULE_WIDE * EK_VECTOR_LANES;
        return unblocked;
    }
    if (rows == 1) {
        unblocked.nr = RULE_WIDE * EK_VECTOR_LANES;
        unblocked.split = 1;
        return unblocked;
    }
    return blocks(cheapest(tiles, count, p, threads), p, threads);
}
