"""How a product is computed: the value of a row of the GEMM table, and its analytic default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from edgekit.kb.costs.rule import (
    FEW_PANELS,
    FEW_TILES,
    K_STEP,
    LARGEST,
    LONG_VECTORS,
    PACK_ROWS,
    PANELS_EACH,
    ROWS_DEPTH,
    STREAMS,
    STRIP_COLUMNS,
    WIDE,
)
from edgekit.kb.costs.tile_cost import (
    copies_panels,
    may_be_transposed,
    parts,
    reads_rows,
    round_up,
    tile_cost,
)
from edgekit.kb.features import GemmShape, Packed
from edgekit.kb.targets.board import BoardProfile, Caches, caches_of
from edgekit.kb.targets.isa import BYTES

Split = Literal["m", "n"]


@dataclass(frozen=True, order=True)
class Method:
    """Blocks of the loop nest (elements), packing, the register tile, and what threads share.

    mc x kc of A stay in the L2 cache, kc x nr of B in the L1 cache, nc columns of B at a time.
    A tile is mr x nr of C, its vectors along n; along m if mr alone is whole vectors (a
    transposed tile). nr = 1 is the GEMV with a column vector, mr = 1 with a row vector. Threads
    share the rows of C with `split` "m", its columns with "n".
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
        """Whether it is for products with one row or column."""
        return 1 in (self.mr, self.nr)

    def is_transposed(self, vl: int) -> bool:
        """Whether the vectors of its tile, of `vl` lanes, stand along m."""
        return self.nr % vl != 0 and self.mr % vl == 0

    def cut(self, shape: GemmShape) -> Method:
        """What of the method is left on a product: blocks no larger than it, in whole tiles."""
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
    """The axis that threads share; ValueError if `text` is none."""
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
    """The method that vector length and cache sizes alone suggest for a product.

    ek_gemm_default (device/kernels/gemm/default.c) is the same rule, in whole numbers throughout:

    1. m, k, n: at least 1, at most 2^28.
    2. n = 1: tile w x 1; else m = 1: tile 1 x w, w being eight vectors. Blocks are the product,
       nothing is packed, threads split m if n = 1, else n. Not for a B of bytes with n = 1 that
       was packed beforehand: its one column is a panel.
    3. Otherwise the tile of least cost (`tile_cost`; with threads > 1 the busiest one's share of
       it), the first of equals: the `Columns` as they are, then, if a vector has more than one lane
       and n is small (`may_be_transposed`), transposed, one line lower if that is whole vectors and
       none that uses AMX.
    4. kc: kc x (mr + nr) elements fill 7/8 of L1; if at most 16 panels of rows (transposed: of
       columns) share a panel of vectors, or vectors have 16 lanes or more, that panel, kc x nr
       (transposed: mr), fills half of L2.
       mc: mc x kc fill half of L2; nc: kc x nc half of L3 (Low et al., "Analytical Modeling Is
       Enough for High-Performance BLIS", TOMS 2016), of bytes half of L2: what was packed on the
       way is used at once. Of a core with AMX one thread packs strips of a B that is larger than a
       quarter of L2: a sixteenth of it, but 128 columns at least. Each is rounded down to whole
       steps (16, mr, nr), and then to equal parts of the product.
    5. A is read where it is. B is packed for bytes; for f32 if at least 64 tiles of rows use it
       and it is larger than L2. Where a core is slow at reading panels of f32 from rows that are
       apart (`reads_rows`) and B is larger than half of L2, they are no deeper than 128; than 32,
       which is as many rows as the core follows, if at most 3 tiles share them and B is larger than
       L2. Where B is large and A has rows enough (`copies_panels`), each is packed just before it
       is multiplied, and fills 3/4 of L1: nc is one panel, or four for each of several threads.
    6. With threads > 1 they share the rows, or the columns if a thread packs what it multiplies
       (normal tiles of bytes, and those of point 5): each thread then packs some of B. Where all
       of it was packed beforehand and AMX multiplies it, rows were better. They share the other
       axis if the busiest one then has less than 3/4 of the work. Blocks are not cut for threads,
       and nc is as for f32: they wait for each other twice in each block.
    """
    m, k, n = (min(max(size, 1), LARGEST) for size in (shape.m, shape.k, shape.n))
    vl = board.isa.vl
    if n == 1 and (dtype == "f32" or packed != "b"):
        return Method(m, k, n, pack_a=False, pack_b=False, mr=WIDE * vl, nr=1, split="m")
    if m == 1:
        return Method(m, k, n, pack_a=False, pack_b=False, mr=1, nr=WIDE * vl, split="n")
    whole = GemmShape(m, k, n)
    choices = choices_of(board, whole, dtype, packed)

    def cost(tile: tuple[int, int]) -> int:
        alone = tile_cost(board, *tile, whole, dtype, packed)
        if threads == 1:
            return alone
        rows, panels = parts(m, tile[0]), parts(n, tile[1])
        tiles = rows if _split(board, tile, whole, dtype, threads, packed) == "m" else panels
        return alone // tiles * parts(tiles, threads)

    mr, nr = min(choices, key=cost)
    return method_of_tile(board, mr, nr, whole, dtype, threads, packed)


def choices_of(
    board: BoardProfile, shape: GemmShape, dtype: str, packed: Packed
) -> list[tuple[int, int]]:
    """Point 3 of the analytic rule: the tiles, mr x nr, it chooses from."""
    vl, columns = board.isa.vl, board.isa.columns
    heights = columns.of(dtype)
    choices = [(height, nv * vl) for nv, height in enumerate(heights, 1)]
    if may_be_transposed(board, shape, dtype, packed):
        most = columns.vector_rows(dtype) or max(heights)
        lower = (min(height, most) for height in heights)
        choices += [(nv * vl, height - (height % vl == 0)) for nv, height in enumerate(lower, 1)]
    return choices


def method_of_tile(
    board: BoardProfile,
    mr: int,
    nr: int,
    shape: GemmShape,
    dtype: str = "f32",
    threads: int = 1,
    packed: Packed = "none",
) -> Method:
    """Points 4 to 6 of the analytic rule, for a tile and a product without sizes of 0."""
    m, k, n = shape.m, shape.k, shape.n
    caches, size = caches_of(board), BYTES[dtype]
    depth = _depth(caches, board, mr, nr, (m, n), size)
    if k * n * size > caches.l2 // 2 and reads_rows(board, (mr, nr), shape, dtype, packed):
        streamed = parts(m, mr) <= FEW_TILES and k * n * size > caches.l2
        copied = copies_panels(board, (mr, nr), shape, dtype, packed)
        in_l1 = caches.l1 * 3 // 4 // (nr * size)
        most = STREAMS if streamed else in_l1 if copied else ROWS_DEPTH
        depth = min(depth, most)
    kc = _equal_parts(k, depth, K_STEP)
    mc = _equal_parts(m, caches.l2 // 2 // (kc * size), mr)
    room = caches.l3 if dtype == "f32" or threads > 1 else caches.l2
    nc = _equal_parts(n, room // 2 // (kc * size), nr)
    if _packs_strips(board, shape, dtype, threads, packed):
        nc = _equal_parts(n, max(caches.l2 // 16 // k, STRIP_COLUMNS), nr)
    split = _split(board, (mr, nr), shape, dtype, threads, packed)
    pack_b = dtype != "f32" or (parts(m, mr) >= PACK_ROWS and k * n * size > caches.l2)
    if copies_panels(board, (mr, nr), shape, dtype, packed):
        pack_b = True
        nc = _equal_parts(n, nr if threads == 1 else PANELS_EACH * threads * nr, nr)
    return Method(mc, kc, nc, pack_a=False, pack_b=pack_b, mr=mr, nr=nr, split=split)


def _split(
    board: BoardProfile,
    tile: tuple[int, int],
    shape: GemmShape,
    dtype: str,
    threads: int,
    packed: Packed,
) -> Split:
    """Point 6 of the analytic rule."""
    if threads == 1:
        return "m"
    rows, panels = parts(shape.m, tile[0]), parts(shape.n, tile[1])
    by_rows, by_panels = parts(rows, threads) * panels, parts(panels, threads) * rows
    transposed = tile[1] % board.isa.vl != 0
    amx = board.isa.columns.vector_rows(dtype) > 0
    packs = dtype != "f32" and not (amx and packed == "b")
    packs |= copies_panels(board, tile, shape, dtype, packed)
    if transposed or not packs:
        return "n" if 4 * by_panels < 3 * by_rows else "m"
    return "m" if 4 * by_rows < 3 * by_panels else "n"


def _packs_strips(
    board: BoardProfile, shape: GemmShape, dtype: str, threads: int, packed: Packed
) -> bool:
    """Whether blocks of columns are what stays near of a B of bytes that is packed on the way."""
    large = shape.k * shape.n > caches_of(board).l2 // 4
    return board.isa.columns.vector_rows(dtype) > 0 and large and threads == 1 and packed != "b"


def limits_of(method: Method, shape: GemmShape, board: BoardProfile, dtype: str) -> Method:
    """What a method that was measured on one product says of others.

    A block or tile that held the whole of that product was no limit there. On larger ones it is
    what caches and registers hold, or more if more was good: not the size that the measured
    product happened to have.
    """
    mr, nr = _whole_tile(method, shape, board, dtype)
    kc, mc, nc = _room(caches_of(board), mr, nr, dtype)
    return replace(
        method,
        mr=mr,
        nr=nr,
        mc=max(method.mc, mc) if method.mc >= shape.m else method.mc,
        kc=max(method.kc, kc) if method.kc >= shape.k else method.kc,
        nc=max(method.nc, nc) if method.nc >= shape.n else method.nc,
    )


def _depth(
    caches: Caches, board: BoardProfile, mr: int, nr: int, extents: tuple[int, int], size: int
) -> int:
    """The most kc: a vector panel that many others share stays in L1, else half of L2 will do. So
    it does with long vectors: a panel is read at a vector for several products, which L2 keeps up
    with, and every cut of k loads and stores C once more."""
    transposed = nr % board.isa.vl != 0
    sharing = parts(extents[1], nr) if transposed else parts(extents[0], mr)
    if sharing <= FEW_PANELS or board.isa.vl >= LONG_VECTORS:
        return caches.l2 // 2 // ((mr if transposed else nr) * size)
    return caches.l1 * 7 // 8 // ((mr + nr) * size)


def _whole_tile(
    method: Method, shape: GemmShape, board: BoardProfile, dtype: str
) -> tuple[int, int]:
    """The tile, as high as its code can be where it was as high as the product."""
    vl, heights = board.isa.vl, board.isa.columns.of(dtype)
    transposed = method.nr % vl != 0
    mr, nr = method.mr, method.nr
    if 1 in (shape.m, shape.n) or (mr % vl != 0 and transposed):
        return mr, nr
    nv = min((mr if transposed else nr) // vl, len(heights))
    if transposed and nr >= shape.n:
        return mr, max(nr, heights[nv - 1] - (heights[nv - 1] % vl == 0))
    if not transposed and mr >= shape.m:
        return max(mr, heights[nv - 1]), nr
    return mr, nr


def _room(caches: Caches, mr: int, nr: int, dtype: str) -> tuple[int, int, int]:
    """kc, mc, nc that fill their caches; products with a vector have no use for blocks."""
    if 1 in (mr, nr):
        return LARGEST, LARGEST, LARGEST
    size, room = BYTES[dtype], caches.l3 if dtype == "f32" else caches.l2
    kc = max(caches.l1 * 7 // 8 // ((mr + nr) * size) // K_STEP * K_STEP, K_STEP)
    mc = max(caches.l2 // 2 // (kc * size) // mr * mr, mr)
    nc = max(room // 2 // (kc * size) // nr * nr, nr)
    return kc, mc, nc


def _equal_parts(extent: int, limit: int, step: int) -> int:
    """The extent, or the part of it if it is cut into as few equal ones as the limit allows."""
    most = max(limit // step * step, step)
    count = parts(extent, most)
    return extent if count == 1 else round_up(parts(extent, count), step)
