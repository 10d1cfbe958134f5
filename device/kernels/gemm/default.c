/* ek_gemm_default: a method from the shape, the register tiles and the cache sizes alone.
 *
 * The rule is the docstring of analytic_method in kb/method.py, which a test holds this against.
 * Compile-time parameters: EK_L1_BYTES, EK_L2_BYTES, EK_L3_BYTES (none is 0), EK_VECTOR_LANES, and
 * EK_F32_TILES and EK_I8_TILES: {height, vectors}, ... for 1, 2, ... vectors. */
#include "../kernel.h"
#include "gemm.h"

enum { LONG = EK_VECTOR_LANES >= 16 }; /* vectors of which the prices were measured apart */
enum { PACKING = LONG ? 2 : 4, STORING = LONG ? 1 : 3 }; /* of a turned f32 tile, per element */
enum { SEGMENT = LONG ? 1 : 4, PARTIAL = LONG ? 0 : 6 }; /* of bytes: rows of a tile of C */
enum { GROUP = 4, TURNED_AT_ONCE = 4 };                  /* of bytes */
enum { PAGE = 4096, WAYS = 8, POINTED = 14 };            /* rows of A in place */
enum { K_STEP = 16, PIECES = 4, FEW_PANELS = 16, PACK_ROWS = 64, WIDE = 8, TURNED_COLUMNS = 64 };
enum { FEW_PASSES = 4, PASS_DEPTH = 32, WIDE_VECTORS = 8 }; /* over an f32 B in place */
static const int64_t LARGEST = 1 << 28;

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
static int64_t limited(long size) {
    return size < 1 ? 1 : size < LARGEST ? size : LARGEST;
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The extent, or the part of it if it is cut into as few equal ones as the limit allows. */
static int64_t equal_parts(int64_t extent, int64_t limit, int64_t step) {
    int64_t most = limit / step * step, count = parts(extent, most < step ? step : most);
    return count == 1 ? extent : round_up(parts(extent, count), step);
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t panels_cost(int64_t height, int64_t nv, int64_t lines, int64_t vectors,
                           int64_t loading) {
    int64_t rows = parts(lines, height), columns = parts(vectors, nv);
    return 2 * most(lines * vectors, WIDE * rows * columns) + columns * lines +
           rows * vectors * (rows > 1 ? loading : 1);
}

typedef struct {
    int64_t m, n, k;
    int f32, a_packed, b_packed;
} product;

/* Rows in place that a tile reads from one set of L1, beyond its ways. */
static int64_t sharing_sets(int64_t mr, int64_t m, int64_t distance) {
    int64_t apart = least(distance & -distance, PAGE);
    return most(parts(least(mr, m) * apart, PAGE) - WAYS, 0) * m;
}

/* A panel's last vector that holds one column, beside others, takes one product for all rows. */
static int64_t saved_by_one_column(shape s, int64_t m, int64_t n) {
    int64_t vectors = parts(n, EK_VECTOR_LANES);
    if (EK_VECTOR_LANES < WIDE_VECTORS || n % EK_VECTOR_LANES != 1 ||
        vectors <= parts(vectors, s.nr / EK_VECTOR_LANES))
        return 0;
    return 2 * (m - parts(m, s.mr));
}

/* Per k, in halves of a vector multiply-add; a turned tile needs A packed, and stores C against
 * its rows; the first passes over a B in place take longer than their loads alone. */
static int64_t float_cost(shape s, product p) {
    if (s.nr % EK_VECTOR_LANES)
        return panels_cost(s.nr, s.mr / EK_VECTOR_LANES, p.n, parts(p.m, EK_VECTOR_LANES), 1) +
               (p.a_packed ? 0 : PACKING * p.m) + STORING * p.m * p.n / p.k;
    int64_t vectors = parts(p.n, EK_VECTOR_LANES);
    int64_t cost = panels_cost(s.mr, s.nr / EK_VECTOR_LANES, p.m, vectors, 1);
    if (p.a_packed)
        cost -= saved_by_one_column(s, p.m, p.n);
    else if (LONG)
        cost += sharing_sets(s.mr, p.m, 4 * p.k) * parts(p.n, s.nr) / 2;
    int in_place = !p.b_packed && EK_VECTOR_LANES >= WIDE_VECTORS && 4 * p.k * p.n <= EK_L3_BYTES;
    if (in_place && p.k >= PASS_DEPTH && p.n >= TURNED_COLUMNS)
        cost += least(parts(p.m, s.mr), FEW_PASSES) * vectors / 2;
    return cost;
}

/* Per four of k: turning rows of k into groups is on the way, and the stores of C. */
static int64_t byte_cost(shape s, product p) {
    int turned = s.nr % EK_VECTOR_LANES != 0;
    int64_t groups = parts(p.k, GROUP), vectors = parts(p.n, EK_VECTOR_LANES), cost, fours;
    int64_t loading = p.k * (turned ? s.mr : s.nr) > EK_L1_BYTES / 2 ? 2 : 1;
    if (turned) {
        int64_t of_m = parts(p.m, EK_VECTOR_LANES);
        cost = panels_cost(s.nr, s.mr / EK_VECTOR_LANES, p.n, of_m, loading);
        cost += 3 * p.m * p.n / groups;
        fours = parts(vectors, TURNED_AT_ONCE);
    } else {
        int64_t panels = parts(p.n, s.nr), nv = s.nr / EK_VECTOR_LANES;
        int64_t stores = p.m * (SEGMENT * panels + (p.n % EK_VECTOR_LANES ? PARTIAL : 0));
        cost = panels_cost(s.mr, nv, p.m, vectors, loading) + stores / groups;
        if (p.a_packed) {
            cost -= saved_by_one_column(s, p.m, p.n);
        } else if (LONG) {
            int64_t pointers = least(s.mr, p.m) > POINTED ? p.m : 0;
            cost += (sharing_sets(s.mr, p.m, p.k) + pointers) * panels / 2;
        }
        fours = panels * parts(nv, TURNED_AT_ONCE);
    }
    return cost + (p.b_packed ? 0 : 4 * vectors + 12 * fours);
}

static int64_t tile_cost(shape s, product p) {
    return p.f32 ? float_cost(s, p) : byte_cost(s, p);
}

/* Number i of the tiles as they are, then of the tiles turned. */
static shape shape_of(const tile *tiles, size_t count, size_t i) {
    if (i < count)
        return (shape){tiles[i].mr, tiles[i].nv * EK_VECTOR_LANES};
    tile t = tiles[i - count];
    return (shape){t.nv * EK_VECTOR_LANES, t.mr - (t.mr % EK_VECTOR_LANES == 0)};
}

static shape cheapest(const tile *tiles, size_t count, product p) {
    shape best = shape_of(tiles, count, 0);
    int turned = EK_VECTOR_LANES > 1 && p.n < TURNED_COLUMNS && (p.f32 || p.a_packed);
    for (size_t i = 1; i < count * (turned ? 2 : 1); i++) {
        shape other = shape_of(tiles, count, i);
        if (tile_cost(other, p) < tile_cost(best, p))
            best = other;
    }
    return best;
}

static ek_gemm_method blocks(int f32, int threads, int64_t mr, int64_t nr, int64_t m, int64_t n,
                             int64_t k) {
    int64_t size = f32 ? 4 : 1;
    int turned = nr % EK_VECTOR_LANES != 0;
    int64_t sharing = turned ? parts(n, nr) : parts(m, mr), width = turned ? mr : nr;
    int64_t depth = LONG || sharing <= FEW_PANELS
                        ? (int64_t)EK_L2_BYTES / 2 / (width * size)
                        : (int64_t)EK_L1_BYTES * 7 / 8 / ((mr + nr) * size);
    int64_t kc = equal_parts(k, depth, K_STEP);
    int64_t mc = equal_parts(m, EK_L2_BYTES / 2 / (kc * size), mr);
    int64_t nc = equal_parts(n, (f32 ? EK_L3_BYTES : EK_L2_BYTES) / 2 / (kc * size), nr);
    int split = threads > 1 && parts(n, nr) > parts(m, mr);
    int64_t pieces = (int64_t)PIECES * threads;
    if (threads > 1 && !split)
        mc = least(mc, round_up(parts(m, pieces), mr));
    if (split)
        nc = least(nc, round_up(parts(n, pieces), nr));
    return (ek_gemm_method){
        .mc = (int32_t)mc,
        .kc = (int32_t)kc,
        .nc = (int32_t)nc,
        .mr = (int32_t)mr,
        .nr = (int32_t)nr,
        .pack_b = !f32 || (parts(m, mr) >= PACK_ROWS && k * n * size > EK_L2_BYTES),
        .split = (uint8_t)split,
    };
}

ek_gemm_method ek_gemm_default(int dtype, int threads, long m, long n, long k) {
    int a_packed = (dtype & EK_GEMM_A_PACKED) != 0, b_packed = (dtype & EK_GEMM_B_PACKED) != 0;
    int f32 = (dtype & ~(EK_GEMM_A_PACKED | EK_GEMM_B_PACKED)) == EK_GEMM_F32;
    const tile *tiles = f32 ? f32_tiles : i8_tiles;
    size_t count = f32 ? sizeof f32_tiles / sizeof *tiles : sizeof i8_tiles / sizeof *tiles;
    int64_t rows = limited(m), columns = limited(n), depth = limited(k);
    ek_gemm_method whole = {(int32_t)rows, (int32_t)depth, (int32_t)columns, 1, 1, 0, 0, 0};
    if (columns == 1 && (f32 || !b_packed)) {
        whole.mr = WIDE * EK_VECTOR_LANES;
        return whole;
    }
    if (rows == 1) {
        whole.nr = WIDE * EK_VECTOR_LANES;
        whole.split = 1;
        return whole;
    }
    shape best = cheapest(tiles, count, (product){rows, columns, depth, f32, a_packed, b_packed});
    return blocks(f32, threads, best.mr, best.nr, rows, columns, depth);
}
