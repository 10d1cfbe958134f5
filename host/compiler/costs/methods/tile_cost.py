"""The cost of a product with a given register tile, by which the analytic rule selects tiles."""

from __future__ import annotations

from edgekit.host.compiler.costs.methods.rule import (
    AHEAD_LANES,
    ALONE,
    COPIED_PAGES,
    COPIED_ROWS,
    FEW_PASSES,
    FOLLOWED,
    GROUP,
    IN_ORDER_ROWS,
    IN_ORDER_WHOLE,
    LEAST_DEPTH,
    LINE,
    LONG_VECTORS,
    PAGE,
    PASS_DEPTH,
    POINTED,
    REGISTER_GROUPS,
    REGISTER_ROWS,
    REGISTERS,
    ROWS_APART,
    ROWS_DEPTH,
    SMALL_K,
    SMALL_K_ROWS,
    STRIP_LANES,
    SUM_BYTES,
    TRANSPOSED_AT_ONCE,
    TRANSPOSED_COLUMNS,
    TRANSPOSED_FLOATS,
    UNALIGNED,
    WAYS,
    WIDE_VECTORS,
)
from edgekit.kb.features import GemmShape, Packed
from edgekit.kb.targets.board import BoardProfile, caches_of, last_cache
from edgekit.kb.targets.isa import BYTES, ByteProduct, TileCosts, TileKind

# Rows from which strips pay, and with the tile of cores in order; a board's C code has its own.
_STRIP_ROWS, _OWN_STRIP_ROWS = 8, 2

Kind = TileKind


def tile_cost(
    board: BoardProfile,
    mr: int,
    nr: int,
    shape: GemmShape,
    dtype: str = "f32",
    packed: Packed = "none",
) -> int:
    """The cost of a nonempty product with tiles of mr x nr, by the costs of the board.

    The unit is per k for f32, per four of k for bytes.
    """
    costs = tile_costs_of(board, dtype, kind_of(board, (mr, nr), shape, dtype, packed))
    return cost_by(costs, board, (mr, nr), shape, dtype, packed)


def cost_by(
    costs: TileCosts,
    board: BoardProfile,
    tile: tuple[int, int],
    shape: GemmShape,
    dtype: str,
    packed: Packed,
) -> int:
    """`tile_cost` with explicit costs. Panels have equal width, so none is narrow."""
    vl, size, (mr, nr) = board.isa.vl, BYTES[dtype], tile
    transposed = nr % vl != 0
    depth = shape.k if dtype == "f32" else parts(round_up(shape.k, board.isa.k_step), GROUP)
    lines, across = (shape.n, shape.m) if transposed else (shape.m, shape.n)
    height, width = (nr, mr) if transposed else (mr, nr)
    if _is_small_k(board, tile, shape, dtype, packed):
        height = SMALL_K_ROWS
    elif dtype == "f32" and packed != "a" and not transposed:
        height = board.isa.rows_in_place(height, width // vl)
    vectors = parts(across, vl)
    rows, panels = parts(lines, height), parts(vectors, width // vl)
    products = max(lines * vectors, costs.wide * rows * panels)
    amx = kind_of(board, tile, shape, dtype) == "amx"
    if amx:
        each = parts(lines, rows)
        in_registers = rows * vectors * (2 * REGISTER_ROWS if each > REGISTER_ROWS else each)
        products = in_registers * round_up(depth, REGISTER_GROUPS) // depth
    elif packed == "a" and not transposed:
        products -= _saved_by_one_column(mr, nr // vl, vl, shape.m, shape.n)
    far = rows > 1 and shape.k * width * size > board.l1d_bytes // 2
    loads = costs.line * panels * lines + (costs.vector + costs.far * far) * rows * vectors
    nv, high = parts(vectors, panels), parts(lines, rows)
    if dtype == "f32" and packed != "b" and not transposed and across % vl:
        loads += costs.masked * rows * (vectors - (panels - 1) * nv)
    if dtype == "f32" and packed != "a" and not transposed and high > FOLLOWED:
        loads += costs.crowded * panels * lines * _are_far_apart(board, shape)
    panel = packed == "a" or transposed
    late = _is_late(high, nv, panel) if dtype == "f32" else _is_late_of_bytes(board, high, nv)
    loads += costs.late * late * (rows * panels if dtype == "f32" else lines * vectors)
    spilled = (high + 1) * nv >= REGISTERS
    stores = (costs.tile + costs.spilled * spilled) * rows * panels
    paged = not transposed and shape.n * SUM_BYTES % PAGE == 0
    torn = not transposed and panels > 1 and _is_torn(board, nv, shape)
    stores += (costs.segment + costs.paged * paged + costs.torn * torn) * panels * lines
    stores += costs.stored * lines * vectors + costs.element * lines * across + costs.start
    stores += costs.partial * lines if across % vl else 0
    cost = costs.product * products + loads + stores // depth
    if packed != "b":
        cost += _cost_of_b(costs, board, tile, shape, dtype)
    return cost if amx or packed == "a" else cost + _cost_of_a(costs, board, tile, shape, dtype)


def _are_far_apart(board: BoardProfile, shape: GemmShape) -> bool:
    """True if rows of A share sets of L1 or come from beyond L2."""
    distance = shape.k * BYTES["f32"]
    return distance % ROWS_APART == 0 or shape.m * distance > caches_of(board).l2


def _is_torn(board: BoardProfile, nv: int, shape: GemmShape) -> bool:
    """True if panels of nv vectors end inside cache lines of C, which L2 does not hold."""
    beyond = shape.m * shape.n * SUM_BYTES > caches_of(board).l2
    return beyond and nv * board.isa.vl * SUM_BYTES % LINE != 0


def _is_late(rows: int, nv: int, panel: bool) -> bool:
    """True if registers do not hold the operands of the next step too, of a panel or of rows in
    place (F32_AHEAD, F32_ROWS_AHEAD in device/kernels/gemm/f32_tile.h)."""
    if panel:
        return rows * nv + 2 * (parts(rows, AHEAD_LANES) + nv) > REGISTERS
    return rows * nv + rows + 2 * nv > REGISTERS + 1


def _is_late_of_bytes(board: BoardProfile, rows: int, nv: int) -> bool:
    """The same for a tile of bytes whose columns each have a vector of sums per row: on cores in
    order all but the one with code of its own, on others those with sums in most registers."""
    own = own_rows_of_bytes(board)
    return (rows, nv) != (own, 1) if own else 2 * rows * nv * board.isa.vl > REGISTERS


def own_rows_of_bytes(board: BoardProfile) -> int:
    """The rows of the tile of bytes, one vector wide, that a core in order has its own code for
    (I8_IN_ORDER in device/kernels/gemm/i8_tile.h); 0: there is none."""
    scheduled = board.in_order and board.isa.i8 is ByteProduct.MULL16 and board.arch == "aarch64"
    return board.isa.columns.i8[0] if scheduled else 0


def _cost_of_b(
    costs: TileCosts, board: BoardProfile, tile: tuple[int, int], shape: GemmShape, dtype: str
) -> int:
    """The cost of a B that was not packed in advance.

    For bytes, regrouping along k. For floats, packing by tiles of cores in order; the first 4
    passes over B in place, if vectors have 8 lanes or more, k >= 32, n >= 64, and B fits L3. Panels
    copied on the way are copied once, whatever the tile.
    """
    vl, (mr, nr) = board.isa.vl, tile
    transposed, vectors = nr % vl != 0, parts(shape.n, vl)
    if dtype == "f32":
        size = shape.k * shape.n * BYTES[dtype]
        if transposed or vl < WIDE_VECTORS or size > caches_of(board).l3:
            return costs.group * vectors
        if copies_panels(board, tile, shape, dtype, packed="none"):
            return 0
        passes = min(parts(shape.m, mr), FEW_PASSES)
        return costs.passing * passes * vectors if _passes_count(shape) else 0
    if transposed:
        return costs.group * vectors + costs.panel * parts(vectors, TRANSPOSED_AT_ONCE)
    panels = parts(shape.n, nr)
    nv = parts(vectors, panels)
    crossing = costs.crossing if panels > 1 and nv * vl % LINE else 0
    of_panel = costs.panel * parts(nv, TRANSPOSED_AT_ONCE) + crossing
    alone = vectors == 1 and board.isa.columns.vector_rows(dtype) > 0
    return costs.group * (ALONE if alone else vectors) + of_panel * panels


def may_be_transposed(board: BoardProfile, shape: GemmShape, dtype: str, packed: Packed) -> bool:
    """True if transposed tiles are candidates: below 64 columns.

    For floats, below 256 on Intel cores with AMX if half of L2 holds B; for bytes, only if A was
    packed in advance.
    """
    few = TRANSPOSED_COLUMNS
    if dtype == "f32" and board.isa.columns.copies_f32:
        near = shape.k * shape.n * BYTES[dtype] <= caches_of(board).l2 // 2
        few = TRANSPOSED_FLOATS if near else few
    vectors = board.isa.vl > 1
    return vectors and shape.n < few and (dtype == "f32" or packed == "a")


def _passes_count(shape: GemmShape) -> bool:
    return shape.k >= PASS_DEPTH and shape.n >= TRANSPOSED_COLUMNS


def reads_rows(
    board: BoardProfile, tile: tuple[int, int], shape: GemmShape, dtype: str, packed: Packed
) -> bool:
    """True if float panels are read from separate rows of B on a core where that is slow.

    Each row may be in a separate page, and all in the same cache sets. Requires k >= 32 and n >=
    64.
    """
    return (
        board.isa.columns.copies_f32
        and dtype == "f32"
        and packed != "b"
        and tile[1] % board.isa.vl == 0
        and _passes_count(shape)
    )


def shares_rows(board: BoardProfile, mr: int, nr: int, shape: GemmShape) -> bool:
    """True if several row tiles read several panels of floats of a B larger than half of L1, on a
    core with `pack_rows`."""
    several = shape.m > mr and shape.n > nr and nr % board.isa.vl == 0
    large = shape.k * shape.n * BYTES["f32"] > board.l1d_bytes // 2
    pays = (board.costs or board.isa.costs).pack_rows > 0
    return several and large and pays and not reads_far_rows(board, shape)


def is_crowded(board: BoardProfile, nr: int, shape: GemmShape) -> bool:
    """True if panels of floats in place share so few sets of L1 that they had to be too short, on a
    core with `pack_rows`."""
    pays = (board.costs or board.isa.costs).pack_rows > 0
    return pays and min(shape.k, LEAST_DEPTH) > depth_in_place(board, nr, shape.n)


def depth_in_place(board: BoardProfile, nr: int, n: int, dtype: str = "f32") -> int:
    """The k up to which a panel of floats in place fills half of the lines of L1 that it can use.

    Rows that are a multiple of a power of two of bytes apart share cache sets. Other rows begin
    anywhere in a line, so that they occupy part of another one.
    """
    distance, row = n * BYTES[dtype], nr * BYTES[dtype]
    apart = min(distance & -distance, PAGE)
    lines = round_up(row, LINE) if apart >= LINE else row + UNALIGNED
    return board.l1d_bytes // 2 // max(lines, apart)


def copies_panels(
    board: BoardProfile, tile: tuple[int, int], shape: GemmShape, dtype: str, packed: Packed
) -> bool:
    """True if such a panel is copied right before it is multiplied, for a B beyond half of L2.

    Requires 128 rows of A or more, or 48 if rows of B are complete pages apart.
    """
    size = BYTES[dtype]
    rows = COPIED_ROWS if shape.n * size % PAGE else COPIED_PAGES
    large = shape.m >= rows and shape.k * shape.n * size > caches_of(board).l2 // 2
    return large and reads_rows(board, tile, shape, dtype, packed)


def _is_small_k(
    board: BoardProfile, tile: tuple[int, int], shape: GemmShape, dtype: str, packed: Packed
) -> bool:
    """True if a panel of B stays in registers next to a row of sums, for any number of rows of an A
    in place: k <= 4, floats in long vectors (device/kernels/gemm/x86/f32_small_k.h)."""
    vl, (_, nr) = board.isa.vl, tile
    floats = dtype == "f32" and vl >= LONG_VECTORS and packed != "a" and nr % vl == 0
    return floats and shape.k <= SMALL_K and (shape.k + 1) * (nr // vl) + 1 <= REGISTERS


def _cost_of_a(
    costs: TileCosts, board: BoardProfile, tile: tuple[int, int], shape: GemmShape, dtype: str
) -> int:
    """The cost of an A that was not packed in advance.

    For a transposed tile, packing it; otherwise, with long vectors, the cost of rows in place that
    share an L1 set, and of pointers to rows of bytes.
    """
    vl, (mr, nr) = board.isa.vl, tile
    if nr % vl:
        crowded = dtype == "f32" and _are_far_apart(board, shape)
        return (costs.packing + costs.crowded * crowded) * round_up(shape.m, vl)
    if vl < LONG_VECTORS:
        return 0
    slow = _sharing_sets(mr, shape.m, shape.k * BYTES[dtype])
    if dtype != "f32" and min(mr, shape.m) > POINTED:
        slow += shape.m
    return 4 * slow * parts(shape.n, nr)


def tile_costs_of(board: BoardProfile, dtype: str, kind: Kind) -> TileCosts:
    """The costs of tiles of a kind on a board that supports them."""
    of = board.costs or board.isa.costs
    costs = of.f32 if dtype == "f32" else of.i8
    found: TileCosts = getattr(costs, kind)
    return found


def kinds_of(board: BoardProfile, dtype: str) -> tuple[Kind, ...]:
    """The kinds of tiles that a board supports."""
    amx: tuple[Kind, ...] = ("amx",) if board.isa.columns.vector_rows(dtype) else ()
    in_order: tuple[Kind, ...] = ("in_order",) if in_order_tile(board, dtype) else ()
    return ("normal", "transposed", *amx, *in_order)


def in_order_tile(board: BoardProfile, dtype: str) -> tuple[int, int] | None:
    """The tile of rows in place by packed panels that a core in order has its own code for."""
    has_one = dtype == "f32" and (board.costs or board.isa.costs).f32.in_order is not None
    return (IN_ORDER_ROWS, 2 * board.isa.vl) if has_one else None


def kind_of(
    board: BoardProfile,
    tile: tuple[int, int],
    shape: GemmShape,
    dtype: str,
    packed: Packed = "none",
) -> Kind:
    """The kind of a tile for a product.

    AMX is used if its row panels, when evenly divided, are taller than those of vectors.
    """
    mr, nr = tile
    if packed != "a" and tile == in_order_tile(board, dtype):
        return "in_order"
    if nr % board.isa.vl:
        return "transposed"
    most = board.isa.columns.vector_rows(dtype)
    return "amx" if most and parts(shape.m, parts(shape.m, mr)) > most else "normal"


def far_bytes(board: BoardProfile) -> int:
    """Bytes from which B is beyond the last cache; 0: no limit was measured on such cores."""
    return 0 if board.arch == "x86_64" else last_cache(board) * 15 // 16


def is_far(board: BoardProfile, shape: GemmShape, dtype: str) -> bool:
    far = far_bytes(board)
    return far > 0 and BYTES[dtype] * shape.n * shape.k >= far


def strip_rows(board: BoardProfile) -> int:
    """Rows of A from which strips of a B beyond the last cache are packed."""
    all_pay = (board.costs or board.isa.costs).packs_all and board.isa.vl <= STRIP_LANES
    most = _STRIP_ROWS if in_order_tile(board, "f32") is None else _OWN_STRIP_ROWS
    return 1 if all_pay else most


def reads_far_rows(board: BoardProfile, shape: GemmShape) -> bool:
    """True if a B of floats beyond the last cache is read in place, for so few rows. The widest
    tile then reads most of each row of B at once."""
    widest = len(board.isa.columns.f32) * board.isa.vl
    few = shape.m < strip_rows(board) and shape.n >= widest
    return few and board.isa.vl == STRIP_LANES and is_far(board, shape, "f32")


def depth_of_rows(board: BoardProfile, shape: GemmShape) -> int:
    """The k of panels if a core in order packs complete rows of B for k > 256; 0: it packs strips.

    Panels fill up to half of L1: lower ones would read A and C more often. A B of up to 5/8 of L2
    stays there beside panels of 3/8 of it. One beyond L2 must be shared by 48 rows, and packed
    in one pass.
    """
    bytes_of_b, l2 = shape.k * shape.n * BYTES["f32"], caches_of(board).l2
    half = board.l1d_bytes // 2 // (2 * board.isa.vl * BYTES["f32"])
    if shape.k <= 2 * ROWS_DEPTH:
        return 0
    if 8 * bytes_of_b <= 5 * l2:
        return min(half, l2 * 3 // 8 // (shape.n * BYTES["f32"]))
    whole = shape.m >= IN_ORDER_WHOLE and shape.k <= half and is_far(board, shape, "f32")
    return half if whole else 0


def _saved_by_one_column(mr: int, nv: int, vl: int, m: int, n: int) -> int:
    """Multiplications saved if the last column is single.

    If a panel's last vector holds one column and the panel has others, it takes one multiplication
    for all rows of packed A instead of one per row.
    """
    vectors = parts(n, vl)
    if vl < WIDE_VECTORS or n % vl != 1 or vectors <= parts(vectors, nv):
        return 0
    return m - parts(m, mr)


def _sharing_sets(mr: int, m: int, distance: int) -> int:
    """Rows of a tile in place that exceed the ways of one L1 set, times all rows.

    Rows are `distance` bytes apart. Each excess row is read from L2 in every step of k.
    """
    apart = min(distance & -distance, PAGE)
    return max(parts(min(mr, m) * apart, PAGE) - WAYS, 0) * m


def parts(extent: int, part: int) -> int:
    return -(-extent // part)


def round_up(value: int, step: int) -> int:
    return parts(value, step) * step
