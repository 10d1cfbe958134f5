"""How a product is computed: the value of a row of the GEMM table, and its analytic default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from edgekit.kb.board import BoardProfile
from edgekit.kb.features import GemmShape, Packed
from edgekit.kb.tiles import BYTES, COLUMNS, TILES

Split = Literal["m", "n"]

_LARGEST = 1 << 28  # sizes above are taken for this: costs then fit 64 bits in C
_K_STEP = 16  # kc is a multiple: whole groups of bytes, whole lines of floats
_PIECES = 4  # per thread, so that one that is held up gives work to the others
_WIDE = 8  # vectors of sums under way at the same time, to hide the time that one takes
_TURNED_COLUMNS = 64  # from so many on turned tiles lost in every measurement on AVX-512
_FEW_PANELS = 16  # that share a block: it need not stay in L1
_FEW_PASSES = 4  # over a B in place, each of which counts: the core has not learned its way yet
_PASS_DEPTH = 32  # from this k on reading B is more work than writing C
_WIDE_VECTORS = 8  # lanes from which this was measured
_PACK_ROWS = 64  # tiles of rows that must use a packed B before packing pays
_GROUP = 4  # bytes of k that one product of a lane takes
_TURNED_AT_ONCE = 4  # vectors of columns whose rows of k become groups of bytes in registers
_PAGE = 4096  # bytes; rows this far apart share one set of L1
_WAYS = 8  # of such a set, at least
_POINTED = 14  # rows in place whose pointers stay in registers


@dataclass(frozen=True)
class _Prices:
    """In halves of a vector multiply-add. `packing`: an element of A, for a turned f32 tile;
    `storing`: an element of its C, against the rows; of bytes, `segment`: a row of a tile of C,
    `partial`: one more where that row ends in part of a vector. `in_place`: rows that share sets
    of L1, or have their pointers in memory, cost more; `deep`: panels may stay in L2."""

    packing: int
    storing: int
    segment: int
    partial: int
    in_place: bool
    deep: bool


_SHORT = _Prices(packing=4, storing=3, segment=4, partial=6, in_place=False, deep=False)
_LONG = _Prices(packing=2, storing=1, segment=1, partial=0, in_place=True, deep=True)
_LONG_VECTORS = 16  # lanes from which the latter were measured


def _prices(vl: int) -> _Prices:
    return _LONG if vl >= _LONG_VECTORS else _SHORT


@dataclass(frozen=True, order=True)
class Method:
    """Blocks of the loop nest (elements), packing, the register tile, and what threads share.

    mc x kc of A stay in the L2 cache, kc x nr of B in the L1 cache, nc columns of B at a time.
    A tile is mr x nr of C, its vectors along n; along m if mr alone is whole vectors (a "turned"
    tile). nr = 1 is the product with a column vector, mr = 1 with a row vector. Threads share the
    rows of C with `split` "m", its columns with "n".
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

    def is_turned(self, vl: int) -> bool:
        """Whether the vectors of its tile, of `vl` lanes, stand along m."""
        return self.nr % vl != 0 and self.mr % vl == 0

    def cut(self, shape: GemmShape) -> Method:
        """What of the method is left on a product: blocks no larger than it, in whole tiles."""
        return Method(
            min(self.mc, _round_up(max(shape.m, 1), self.mr)),
            min(self.kc, max(shape.k, 1)),
            min(self.nc, _round_up(max(shape.n, 1), self.nr)),
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


@dataclass(frozen=True)
class Caches:
    """Bytes of the data caches that a core may count on, never 0."""

    l1: int
    l2: int
    l3: int


def caches_of(board: BoardProfile) -> Caches:
    """The caches of a profile; what it does not say is guessed from the level below."""
    l2 = board.l2_bytes or 8 * board.l1d_bytes
    return Caches(board.l1d_bytes, l2, board.l3_bytes or 4 * l2)


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
    3. Otherwise the tile of least cost (`tile_cost`), the first of equals: the
       `COLUMNS` as they are, then, if a vector has more than one lane and n < 64, turned, one line
       lower if that is whole vectors; of bytes only if A was packed beforehand.
    4. kc: kc x (mr + nr) elements fill 7/8 of L1; if at most 16 panels of rows (turned: of
       columns) share a panel of vectors, or vectors have 16 lanes or more, that panel, kc x nr
       (turned: mr), fills half of L2.
       mc: mc x kc fill half of L2; nc: kc x nc half of L3 (Low et al., "Analytical Modeling Is
       Enough for High-Performance BLIS", TOMS 2016), of bytes half of L2: what was packed on the
       way is used at once. Each is rounded down to whole steps (16, mr,
       nr), and then to equal parts of the product.
    5. A is read where it is. B is packed for bytes; for f32 if at least 64 tiles of rows use it
       and it is larger than L2.
    6. With threads > 1 they share the axis with more tiles, and its block is cut so that each
       thread gets 4.
    """
    m, k, n = (min(max(size, 1), _LARGEST) for size in (shape.m, shape.k, shape.n))
    vl, heights = TILES[board.simd].vl, COLUMNS[board.simd].of(dtype)
    if n == 1 and (dtype == "f32" or packed != "b"):
        return Method(m, k, n, pack_a=False, pack_b=False, mr=_WIDE * vl, nr=1, split="m")
    if m == 1:
        return Method(m, k, n, pack_a=False, pack_b=False, mr=1, nr=_WIDE * vl, split="n")
    choices = [(height, nv * vl) for nv, height in enumerate(heights, 1)]
    if vl > 1 and n < _TURNED_COLUMNS and (dtype == "f32" or packed == "a"):
        choices += [(nv * vl, height - (height % vl == 0)) for nv, height in enumerate(heights, 1)]
    whole = GemmShape(m, k, n)
    mr, nr = min(choices, key=lambda each: tile_cost(board, each[0], each[1], whole, dtype, packed))
    return method_of_tile(board, mr, nr, whole, dtype, threads)


def tile_cost(
    board: BoardProfile,
    mr: int,
    nr: int,
    shape: GemmShape,
    dtype: str = "f32",
    packed: Packed = "none",
) -> int:
    """What a tile of mr x nr takes of a product without sizes of 0: in halves of a vector
    multiply-add, per k of f32 and per four of k of bytes."""
    vl = TILES[board.simd].vl
    if dtype == "f32":
        return _float_cost(mr, nr, vl, shape, packed, caches_of(board).l3)
    return _byte_cost(mr, nr, vl, shape, packed, caches_of(board).l1)


def _float_cost(mr: int, nr: int, vl: int, shape: GemmShape, packed: Packed, l3: int) -> int:
    """The tiles, and for a turned one the packing of A on the way and the storing of C against its
    rows (`_Prices`); else what A in place costs more (`_rows_in_place`). The first 4 passes over a
    B in place are loaded at 3/2 of the cost, if vectors have 8 lanes or more, k >= 32, n >= 64,
    and B fits L3."""
    m, k, n = shape.m, shape.k, shape.n
    prices = _prices(vl)
    if nr % vl:
        packing = 0 if packed == "a" else prices.packing * m
        stores = prices.storing * m * n // k
        return _panels_cost(nr, mr // vl, n, _parts(m, vl)) + packing + stores
    tiles = _panels_cost(mr, nr // vl, m, _parts(n, vl))
    if packed == "a":
        tiles -= _saved_by_one_column(mr, nr // vl, vl, m, n)
    elif prices.in_place:
        tiles += _sharing_sets(mr, m, k * BYTES["f32"]) * _parts(n, nr) // 2
    in_place = packed != "b" and vl >= _WIDE_VECTORS and k * n * BYTES["f32"] <= l3
    if in_place and k >= _PASS_DEPTH and n >= _TURNED_COLUMNS:
        tiles += min(_parts(m, mr), _FEW_PASSES) * _parts(n, vl) // 2
    return tiles


def _byte_cost(mr: int, nr: int, vl: int, shape: GemmShape, packed: Packed, l1: int) -> int:
    """The tiles; unless B is packed, turning rows of k into groups: 4 per vector of columns, and 12
    for each four of a panel; and the stores: of each row of a tile (`_Prices`), of a turned one 3
    per element. A panel of vectors that is more than half of L1, and shared, is loaded at twice the
    cost. A in place: as of floats, and rows whose pointers are in memory at 3/2 of the cost."""
    m, k, n = shape.m, shape.k, shape.n
    prices = _prices(vl)
    groups, vectors = _parts(k, _GROUP), _parts(n, vl)
    turned = nr % vl != 0
    loading = 2 if k * (mr if turned else nr) > l1 // 2 else 1
    if turned:
        tiles = _panels_cost(nr, mr // vl, n, _parts(m, vl), loading) + 3 * m * n // groups
        fours = _parts(vectors, _TURNED_AT_ONCE)
    else:
        panels = _parts(n, nr)
        stores = m * (prices.segment * panels + (prices.partial if n % vl else 0))
        tiles = _panels_cost(mr, nr // vl, m, vectors, loading) + stores // groups
        if packed == "a":
            tiles -= _saved_by_one_column(mr, nr // vl, vl, m, n)
        elif prices.in_place:
            pointers = m if min(mr, m) > _POINTED else 0
            tiles += (_sharing_sets(mr, m, k) + pointers) * panels // 2
        fours = panels * _parts(nr // vl, _TURNED_AT_ONCE)
    return tiles + (0 if packed == "b" else 4 * vectors + 12 * fours)


def _panels_cost(height: int, nv: int, lines: int, vectors: int, loading: int = 1) -> int:
    """Panels are of equal width, so that none is thin; a tile takes at least as long as the
    products that are under way at the same time. `loading`: of a vector that is shared."""
    rows, columns = _parts(lines, height), _parts(vectors, nv)
    products = 2 * max(lines * vectors, _WIDE * rows * columns)
    return products + columns * lines + rows * vectors * (loading if rows > 1 else 1)


def _saved_by_one_column(mr: int, nv: int, vl: int, m: int, n: int) -> int:
    """Of the products of the tiles: a panel's last vector, where it holds one column and has a
    neighbor in its panel, takes one product for all rows of packed A instead of one for each."""
    vectors = _parts(n, vl)
    if vl < _WIDE_VECTORS or n % vl != 1 or vectors <= _parts(vectors, nv):
        return 0
    return 2 * (m - _parts(m, mr))


def _sharing_sets(mr: int, m: int, distance: int) -> int:
    """Of rows in place that are so many bytes apart: how many of a tile share a set of L1 beyond
    its ways, times all rows. Each of these is read from L2 at every step of k."""
    apart = min(distance & -distance, _PAGE)
    return max(_parts(min(mr, m) * apart, _PAGE) - _WAYS, 0) * m


def method_of_tile(
    board: BoardProfile, mr: int, nr: int, shape: GemmShape, dtype: str = "f32", threads: int = 1
) -> Method:
    """Points 4 to 6 of the analytic rule, for a tile and a product without sizes of 0."""
    m, k, n = shape.m, shape.k, shape.n
    caches, size = caches_of(board), BYTES[dtype]
    kc = _equal_parts(k, _depth(caches, board, mr, nr, (m, n), size), _K_STEP)
    mc = _equal_parts(m, caches.l2 // 2 // (kc * size), mr)
    room = caches.l3 if dtype == "f32" else caches.l2
    nc = _equal_parts(n, room // 2 // (kc * size), nr)
    split: Split = "n" if threads > 1 and _parts(n, nr) > _parts(m, mr) else "m"
    if threads > 1 and split == "m":
        mc = min(mc, _round_up(_parts(m, _PIECES * threads), mr))
    if threads > 1 and split == "n":
        nc = min(nc, _round_up(_parts(n, _PIECES * threads), nr))
    pack_b = dtype != "f32" or (_parts(m, mr) >= _PACK_ROWS and k * n * size > caches.l2)
    return Method(mc, kc, nc, pack_a=False, pack_b=pack_b, mr=mr, nr=nr, split=split)


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
    turned = nr % TILES[board.simd].vl != 0
    sharing = _parts(extents[1], nr) if turned else _parts(extents[0], mr)
    if sharing <= _FEW_PANELS or _prices(TILES[board.simd].vl).deep:
        return caches.l2 // 2 // ((mr if turned else nr) * size)
    return caches.l1 * 7 // 8 // ((mr + nr) * size)


def _whole_tile(
    method: Method, shape: GemmShape, board: BoardProfile, dtype: str
) -> tuple[int, int]:
    """The tile, as high as its code can be where it was as high as the product."""
    vl, heights = TILES[board.simd].vl, COLUMNS[board.simd].of(dtype)
    turned = method.nr % vl != 0
    mr, nr = method.mr, method.nr
    if 1 in (shape.m, shape.n) or (mr % vl != 0 and turned):
        return mr, nr
    nv = min((mr if turned else nr) // vl, len(heights))
    if turned and nr >= shape.n:
        return mr, max(nr, heights[nv - 1] - (heights[nv - 1] % vl == 0))
    if not turned and mr >= shape.m:
        return max(mr, heights[nv - 1]), nr
    return mr, nr


def _room(caches: Caches, mr: int, nr: int, dtype: str) -> tuple[int, int, int]:
    """kc, mc, nc that fill their caches; products with a vector have no use for blocks."""
    if 1 in (mr, nr):
        return _LARGEST, _LARGEST, _LARGEST
    size, room = BYTES[dtype], caches.l3 if dtype == "f32" else caches.l2
    kc = max(caches.l1 * 7 // 8 // ((mr + nr) * size) // _K_STEP * _K_STEP, _K_STEP)
    mc = max(caches.l2 // 2 // (kc * size) // mr * mr, mr)
    nc = max(room // 2 // (kc * size) // nr * nr, nr)
    return kc, mc, nc


def _equal_parts(extent: int, limit: int, step: int) -> int:
    """The extent, or the part of it if it is cut into as few equal ones as the limit allows."""
    most = max(limit // step * step, step)
    parts = _parts(extent, most)
    return extent if parts == 1 else _round_up(_parts(extent, parts), step)


def _parts(extent: int, part: int) -> int:
    return -(-extent // part)


def _round_up(value: int, step: int) -> int:
    return _parts(value, step) * step
