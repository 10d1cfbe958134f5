"""How a product is computed: the value of a row of the GEMM table, and its analytic default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.device.runtime.kernel_facts import HALF_SUMS, PACKED_ROWS
from edgekit.host.compiler.costs.methods.gemm_blocks import (
    divides_columns,
    equal_parts,
    max_kc,
    most_in_place,
    packs_both,
    packs_few_rows,
)
from edgekit.host.compiler.costs.methods.half_product import cheapest_half
from edgekit.host.compiler.costs.methods.rule import (
    FEW_TILES,
    FLAT_DEPTH,
    FLAT_ROWS,
    IN_ORDER_COLUMNS,
    IN_ORDER_DEPTH,
    IN_ORDER_NARROW,
    IN_ORDER_ROWS,
    IN_ORDER_SUMS,
    K_STEP,
    LARGEST,
    LINE,
    MANY_PASSES,
    PACK_ROWS,
    PAGE,
    PANELS_EACH,
    ROWS_DEPTH,
    STREAMS,
    STRIP_COLUMNS,
    STRIP_DEPTH,
    WIDE,
)
from edgekit.host.compiler.costs.methods.tile_cost import (
    copies_panels,
    depth_of_rows,
    in_order_tile,
    is_crowded,
    is_far,
    may_be_transposed,
    parts,
    reads_far_rows,
    reads_rows,
    round_up,
    shares_rows,
    strip_rows,
    tile_cost,
)
from edgekit.host.errors import InputError
from edgekit.kb.features import GemmShape, Packed
from edgekit.kb.targets.board import BoardProfile, caches_of
from edgekit.kb.targets.isa import BYTES

Split = Literal["m", "n"]

_SHARED = 131072  # multiply-adds from which threads share a product (EK_GEMM_SHARED)
_LINE_COLUMNS = LINE // BYTES["f32"]


@dataclass(frozen=True, order=True)
class Method:
    """Blocks of the loop nest (in elements), packing, register tile, and split among threads.

    mc x kc of A stays in L2, kc x nr of B in L1, for nc columns of B at a time. A tile is mr x nr
    of C, with vectors along n, or along m if only mr is a multiple of the vector length (a
    transposed tile). nr = 1 is a GEMV with a column vector, mr = 1 with a row vector. Threads
    divide the rows of C with `split` "m", its columns with "n".
    """

    mc: int
    kc: int
    nc: int
    pack_a: bool
    pack_b: bool
    mr: int
    nr: int
    split: Split = "m"

    def __post_init__(self) -> None:
        for name in ("mc", "kc", "nc", "mr", "nr"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of 1 or more, found {getattr(self, name)}")
        split_of(self.split)

    @property
    def is_with_vector(self) -> bool:
        """True if the method is for products with one row or column."""
        return 1 in (self.mr, self.nr)

    def is_transposed(self, vl: int) -> bool:
        """True if the vectors of its tile, of `vl` lanes, are along m."""
        return self.nr % vl != 0 and self.mr % vl == 0

    def cut(self, shape: GemmShape) -> Method:
        """The method limited to a product: blocks no larger than the product, in complete tiles."""
        return Method(
            min(self.mc, round_up(max(shape.m, 1), self.mr)),
            min(self.kc, max(shape.k, 1)),
            min(self.nc, round_up(max(shape.n, 1), self.nr)),
            self.pack_a,
            self.pack_b,
            self.mr,
            self.nr,
            self.split,
        )


def split_of(text: str) -> Split:
    """Parses the axis that threads divide; raises ValueError for any other text."""
    if text == "m":
        return "m"
    if text == "n":
        return "n"
    raise ValueError(f"expected a split of m or n, found '{text}'")


def analytic_method(
    board: BoardProfile,
    shape: GemmShape,
    dtype: str = "f32",
    threads: int = 1,
    packed: Packed = "none",
) -> Method:
    """Derives a product's method from vector length and cache sizes alone.

    ek_gemm_default (device/kernels/gemm/default.c) implements the same rule in integers:

    1. m, k, n: at least 1, at most 2^28. Less than 131072 multiply-adds take one thread.
    2. n = 1: tile w x 1; else m = 1: tile 1 x w, with w eight vectors. Blocks are the product,
       nothing is packed, and threads split m if n = 1, else n. This excludes a B of bytes with
       n = 1 that was packed in advance: its single column is a panel.
    3. Otherwise the tile of least cost (`tile_cost`; with threads > 1, the share of the busiest
       thread), the first among equals. Candidates are the `Columns`, then, if a vector has more
       than one lane and n is small (`may_be_transposed`), the transposed ones, one line lower if
       that is a multiple of the vector length, and none that uses AMX. Instead of these, for floats
       in an A in place and k >= 9, the `in_order_tile`: for n >= 32 if B was packed in advance, or
       with one thread if B is beyond the last cache; and with one thread for n >= 8 if C has 8
       rows and 768 elements; for a B in place beyond half of L1 whose panels had to be less than 64
       deep (or k), it is then taken at any cost.
    4. kc: kc x (mr + nr) elements fill 7/8 of L1. If at most 16 panels of rows (transposed: of
       columns) share a panel of vectors, or vectors have 16 lanes or more, that panel, kc x nr
       (transposed: mr), fills half of L2. On a core with `pack_rows`, if B is larger than
       half of L1 and several row tiles read several panels of it in place, a panel of floats fills
       at most half of the lines of L1 that rows so far apart can occupy (`depth_in_place`), but is
       at least 64 deep. On one with `packs_both`, it is at most 128 deep beside a B beyond L1 for k
       above 192.
       mc: mc x kc fills half of L2. nc: kc x nc fills half of L3 (Low et al., "Analytical Modeling
       Is Enough for High-Performance BLIS", TOMS 2016), for bytes half of L2, since data packed on
       the way is used immediately. On a core with AMX, one thread packs strips of a B larger than a
       quarter of L2: a sixteenth of L2 each, but at least 128 columns. Each block is rounded down
       to complete steps (16, mr, nr), then to equal parts of the product.
    5. A is read in place, except `packed_rows` of floats or fewer by one thread for n >= 32 and a B
       in place that fills L1, and on a core with `packs_both` beside a B beyond L1 from so many
       rows on, in panels of two vectors. B is packed then, for bytes, and for f32 if at least 64
       row tiles use it and it is larger than L2; on cores with `pack_rows` also if twice that many
       use it and it is larger than L1, if six times that many use it and it is larger than half of
       L1, and if that many use it, it is larger than L1, and panels in place had to be less than 64
       deep. A B of floats beyond the last cache (`far_bytes`) is always packed, except on x86, if
       it has several panels, A has 8 rows (2 with an `in_order_tile`, 1 with `packs_all` and four
       lanes), and there is one thread: in strips that fill a quarter of L2, but have at least 128
       columns, and are at most 320 deep. With four lanes, fewer rows read it in place, by the
       widest tile and over all of k. On a core with `pack_rows` whose panels in place had to be
       less than 64 deep, strips are half a page wide and at most 128 deep, and pay from the size of
       L2 on if several row tiles use them, except on cores with an `in_order_tile`. The tile of
       cores in order, which is then taken, always packs B: complete rows in panels of half of L1 if
       that pays (`depth_of_rows`), else such strips, at most 128 deep, or 256 if that is all of k,
       and mc x kc of A fill a sixteenth of L2. On others in order, tiles are one line wide and, for
       a larger k, strips at most 96 deep, in 3/8 of L2 for up to 64 rows, else in half of L3. If a
       core is slow at reading f32 panels from separate rows (`reads_rows`) and B is larger than
       half of L2, panels are at most 128 deep; at most 32, the number of rows that the prefetcher
       follows, if at most 3 tiles share them and B is larger than L2. If B is large and A has
       enough rows (`copies_panels`), each panel is packed right before it is multiplied, and fills
       3/4 of L1: nc is one panel, or four for each of several threads.
    6. Threads divide the rows or the columns: `_select_split`. Products of f16: `_half_method_of`.
    """
    m, k, n = (min(max(size, 1), LARGEST) for size in (shape.m, shape.k, shape.n))
    whole, wide = GemmShape(m, k, n), WIDE * board.isa.vl
    if dtype == "f16":
        return _half_method_of(board, whole, threads, packed)
    if n == 1 and (dtype == "f32" or packed != "b"):
        return Method(m, k, n, pack_a=False, pack_b=False, mr=wide, nr=1, split="m")
    if m == 1:
        return Method(m, k, n, pack_a=False, pack_b=False, mr=1, nr=wide, split="n")
    threads = threads_of(whole, threads)
    best = _tile_of_least_cost(board, whole, dtype, threads, packed)
    return method_of_tile(board, *best, whole, dtype, threads, packed)


def half_method(mr: int, nr: int, packs: bool) -> Method:
    """The method of a product of f16 with a tile; its blocks are fixed."""
    return Method(PACKED_ROWS, HALF_SUMS, nr, pack_a=False, pack_b=packs, mr=mr, nr=nr)


def _half_method_of(board: BoardProfile, shape: GemmShape, threads: int, packed: Packed) -> Method:
    """The method of `cheapest_half`. InputError if the core does not compute f16, or if an operand
    is `packed`."""
    if packed != "none":
        raise InputError(
            f"f16: expected no operand packed in advance, found {packed}; leave out --packed"
        )
    return half_method(*cheapest_half(board, shape, threads_of(shape, threads)))


def threads_of(shape: GemmShape, threads: int) -> int:
    """The threads that share a product, out of those that it may take."""
    return threads if max(shape.m, 1) * max(shape.k, 1) * max(shape.n, 1) >= _SHARED else 1


def _tile_of_least_cost(
    board: BoardProfile, shape: GemmShape, dtype: str, threads: int, packed: Packed
) -> tuple[int, int]:
    """Point 3 of the analytic rule, and the tiles for strips of point 5."""
    choices = choices_of(board, shape, dtype, packed, threads)

    def cost(tile: tuple[int, int]) -> int:
        alone = tile_cost(board, *tile, shape, dtype, packed)
        if threads == 1:
            return alone
        by_rows = _select_split(board, tile, shape, dtype, threads, packed) == "m"
        tiles = parts(shape.m, tile[0]) if by_rows else parts(shape.n, tile[1])
        return alone // tiles * parts(tiles, threads)

    if dtype == "f32" and packed != "b" and reads_far_rows(board, shape):
        return choices[len(board.isa.columns.of(dtype)) - 1]
    for tile in choices:
        if packs_both(board, tile, shape, dtype, packed):
            return tile
    best, own = min(choices, key=cost), in_order_tile(board, dtype)
    large = 2 * shape.k * shape.n * BYTES["f32"] > board.l1d_bytes
    if own and own in choices and packed != "b" and large and is_crowded(board, best[1], shape):
        return own
    if board.in_order and _packs_strips_of_floats(board, best, shape, dtype, threads, packed):
        flat = (tile for tile in choices if tile[1] == _LINE_COLUMNS)
        return own if own in choices else next(flat, best)
    return best


def choices_of(
    board: BoardProfile, shape: GemmShape, dtype: str, packed: Packed, threads: int = 1
) -> list[tuple[int, int]]:
    """Point 3 of the analytic rule: the candidate tiles, mr x nr."""
    vl, columns = board.isa.vl, board.isa.columns
    heights = columns.of(dtype)
    choices = [(height, nv * vl) for nv, height in enumerate(heights, 1)]
    own = in_order_tile(board, dtype)
    if own and _may_be_in_order(board, shape, dtype, packed, threads):
        return [*choices, own]
    if may_be_transposed(board, shape, dtype, packed):
        most = columns.vector_rows(dtype) or max(heights)
        lower = (min(height, most) for height in heights)
        choices += [(nv * vl, height - (height % vl == 0)) for nv, height in enumerate(lower, 1)]
    return choices


def _may_be_in_order(
    board: BoardProfile, shape: GemmShape, dtype: str, packed: Packed, threads: int
) -> bool:
    """True if the tile of cores in order is a candidate, where there is one."""
    if packed == "a" or shape.k < IN_ORDER_DEPTH:
        return False
    shared = shape.m >= IN_ORDER_ROWS and shape.m * shape.n >= IN_ORDER_SUMS
    far = shape.n >= IN_ORDER_COLUMNS and is_far(board, shape, dtype)
    if packed == "b":
        return shape.n >= IN_ORDER_COLUMNS
    return threads == 1 and (far or (shared and shape.n >= IN_ORDER_NARROW))


def method_of_tile(
    board: BoardProfile,
    mr: int,
    nr: int,
    shape: GemmShape,
    dtype: str = "f32",
    threads: int = 1,
    packed: Packed = "none",
) -> Method:
    """Points 4 to 6 of the analytic rule, for a tile and a nonempty product."""
    m, k, n = shape.m, shape.k, shape.n
    caches, size = caches_of(board), BYTES[dtype]
    depth = max_kc(caches, board, mr, nr, (m, n), size)
    if k * n * size > caches.l2 // 2 and reads_rows(board, (mr, nr), shape, dtype, packed):
        streamed = parts(m, mr) <= FEW_TILES and k * n * size > caches.l2
        copied = copies_panels(board, (mr, nr), shape, dtype, packed)
        in_l1 = caches.l1 * 3 // 4 // (nr * size)
        most = STREAMS if streamed else in_l1 if copied else ROWS_DEPTH
        depth = min(depth, most)
    own = packed == "none" and (mr, nr) == in_order_tile(board, dtype)
    strips = not own and _packs_strips_of_floats(board, (mr, nr), shape, dtype, threads, packed)
    both = packs_both(board, (mr, nr), shape, dtype, packed)
    pack_b = own or strips or both or dtype != "f32" or _packs_floats(board, mr, nr, shape)
    flat = strips and board.in_order and k > STRIP_DEPTH
    deep = depth_of_rows(board, shape) if own else 0
    if deep:
        depth = deep
    elif own:
        depth = min(depth, ROWS_DEPTH if k > 2 * ROWS_DEPTH else 2 * ROWS_DEPTH)
    crowded = strips and is_crowded(board, nr, shape)
    if crowded:
        depth = min(depth, ROWS_DEPTH)
    elif strips:
        depth = min(depth, FLAT_DEPTH if flat and m <= FLAT_ROWS else STRIP_DEPTH)
    if not pack_b and packed != "b":
        depth = min(depth, most_in_place(board, mr, nr, shape))
    kc = equal_parts(k, depth, K_STEP)
    mc = equal_parts(m, caches.l2 // (16 if own and not deep else 2) // (kc * size), mr)
    room = caches.l3 if dtype == "f32" or threads > 1 else caches.l2
    nc = equal_parts(n, room // 2 // (kc * size), nr)
    if _packs_strips(board, shape, dtype, threads, packed):
        nc = equal_parts(n, max(caches.l2 // 16 // k, STRIP_COLUMNS), nr)
    if crowded:
        nc = equal_parts(n, round_up(PAGE // 2 // size, nr), nr)
    elif strips or (own and not deep):
        bytes_at_once = caches.l2 // 4
        if flat:
            bytes_at_once = caches.l2 * 3 // 8 if m <= FLAT_ROWS else caches.l3 // 2
        nc = equal_parts(n, max(bytes_at_once // (kc * size), STRIP_COLUMNS), nr)
    split = _select_split(board, (mr, nr), shape, dtype, threads, packed)
    if copies_panels(board, (mr, nr), shape, dtype, packed):
        pack_b = True
        nc = equal_parts(n, nr if threads == 1 else PANELS_EACH * threads * nr, nr)
    few = not pack_b and threads == 1 and packs_few_rows(board, nr, shape, dtype, packed)
    return Method(mc, kc, nc, pack_a=few or both, pack_b=pack_b, mr=mr, nr=nr, split=split)


def _packs_floats(board: BoardProfile, mr: int, nr: int, shape: GemmShape) -> bool:
    """True if enough row tiles use a B of floats that is too large for its cache."""
    rows, size = parts(shape.m, mr), shape.k * shape.n * BYTES["f32"]
    if rows >= PACK_ROWS and size > caches_of(board).l2:
        return True
    if not shares_rows(board, mr, nr, shape):
        return False
    least, l1 = (board.costs or board.isa.costs).pack_rows, board.l1d_bytes
    if is_crowded(board, nr, shape):
        return rows >= least and size > l1
    return rows >= (2 if size > l1 else MANY_PASSES) * least


def _packs_strips_of_floats(
    board: BoardProfile,
    tile: tuple[int, int],
    shape: GemmShape,
    dtype: str,
    threads: int,
    packed: Packed,
) -> bool:
    """True if B comes from beyond the last cache. Panels in place are then columns of lines that no
    prefetcher follows, so packing pays even for one row of tiles; for several it does from beyond
    L2 if they share cache sets."""
    if dtype != "f32" or packed == "b" or threads > 1:
        return False
    several = shape.n > tile[1] and tile[1] % board.isa.vl == 0
    if several and is_far(board, shape, dtype) and shape.m >= strip_rows(board):
        return True
    near = shape.k * shape.n * BYTES[dtype] >= caches_of(board).l2 and shares_rows(
        board, *tile, shape
    )
    return near and not in_order_tile(board, dtype) and is_crowded(board, tile[1], shape)


def _select_split(
    board: BoardProfile,
    tile: tuple[int, int],
    shape: GemmShape,
    dtype: str,
    threads: int,
    packed: Packed,
) -> Split:
    """Point 6 of the analytic rule: several threads divide the rows, or the columns if a thread
    packs what it multiplies (normal byte tiles, and those of point 5, so that each packs a part
    of it). For a B packed in advance and AMX, rows were faster. They divide the other axis if that
    leaves the busiest thread less than 3/4 of the work (`divides_columns`). Blocks are not reduced
    for threads, and nc is as for f32, since each block has two barriers."""
    if threads == 1:
        return "m"
    rows, panels = parts(shape.m, tile[0]), parts(shape.n, tile[1])
    transposed = tile[1] % board.isa.vl != 0
    amx = board.isa.columns.vector_rows(dtype) > 0
    packs = dtype != "f32" and not (amx and packed == "b")
    packs |= copies_panels(board, tile, shape, dtype, packed)
    packs |= packs_both(board, tile, shape, dtype, packed)
    if transposed or not packs:
        in_place = not transposed and packed != "b"
        return "n" if divides_columns(board, rows, panels, threads, in_place) else "m"
    return "m" if 4 * parts(rows, threads) * panels < 3 * parts(panels, threads) * rows else "n"


def _packs_strips(
    board: BoardProfile, shape: GemmShape, dtype: str, threads: int, packed: Packed
) -> bool:
    """True if a B of bytes that is packed on the way is processed in cached strips of columns."""
    large = shape.k * shape.n > caches_of(board).l2 // 4
    return board.isa.columns.vector_rows(dtype) > 0 and large and threads == 1 and packed != "b"
