"""Sizes of the blocks of a product."""

from __future__ import annotations

from edgekit.host.compiler.costs.methods.rule import (
    FEW_PANELS,
    IN_ORDER_COLUMNS,
    LARGEST,
    LEAST_DEPTH,
    LONG_VECTORS,
    ROWS_DEPTH,
    STRIP_LANES,
)
from edgekit.host.compiler.costs.methods.tile_cost import (
    depth_in_place,
    far_bytes,
    parts,
    round_up,
    shares_rows,
)
from edgekit.kb.features import GemmShape, Packed
from edgekit.kb.targets.board import BoardProfile, Caches, caches_of
from edgekit.kb.targets.isa import BYTES


def max_kc(
    caches: Caches, board: BoardProfile, mr: int, nr: int, extents: tuple[int, int], size: int
) -> int:
    """The maximum kc of a tile, for products of these rows and columns of `size` bytes.

    A vector panel shared by many others should stay in L1, otherwise half of L2 suffices. That also
    holds for long vectors: each vector of a panel feeds several products, so L2 keeps up, and every
    extra block of k loads and stores C again.
    """
    transposed = nr % board.isa.vl != 0
    sharing = parts(extents[1], nr) if transposed else parts(extents[0], mr)
    if sharing <= FEW_PANELS or board.isa.vl >= LONG_VECTORS:
        return caches.l2 // 2 // ((mr if transposed else nr) * size)
    return caches.l1 * 7 // 8 // ((mr + nr) * size)


def equal_parts(extent: int, limit: int, step: int) -> int:
    """The extent divided into as few equal parts as the limit allows."""
    most = max(limit // step * step, step)
    count = parts(extent, most)
    return extent if count == 1 else round_up(parts(extent, count), step)


def packs_few_rows(
    board: BoardProfile, nr: int, shape: GemmShape, dtype: str, packed: Packed
) -> bool:
    """True if packing a few rows of floats pays, for a B in place that fills L1."""
    few = shape.m <= (board.costs or board.isa.costs).packed_rows and shape.n >= IN_ORDER_COLUMNS
    fills = _bytes_of_b(shape) >= caches_of(board).l1 and dtype == "f32" and packed == "none"
    return few and nr % board.isa.vl == 0 and fills


def packs_both(
    board: BoardProfile, tile: tuple[int, int], shape: GemmShape, dtype: str, packed: Packed
) -> bool:
    """True if panels of both operands pay, of two vectors of B, for a B of floats beyond L1 and
    enough rows: the fewer, the more rows of B in place share sets of L1."""
    least = _packs_both(board)
    if least == 0 or tile != (board.isa.columns.f32[1], 2 * board.isa.vl):
        return False
    depth = depth_in_place(board, tile[1], shape.n)
    enough = shape.m >= max(least, depth * 3 // 8 if shape.k > depth else 8 * least)
    return enough and _is_beyond_l1(board, shape) and dtype == "f32" and packed == "none"


def divides_columns(
    board: BoardProfile, rows: int, panels: int, threads: int, in_place: bool
) -> bool:
    """True if threads divide the columns of a B that they do not pack: if that leaves the busiest
    one less than 3/4 of the work.

    On cores with vectors of four lanes, except x86, also for floats `in_place` if that makes no
    fewer pieces, and at most 4/3 of the work: each thread reads a part of B, and one that starts
    late leaves smaller pieces to others.
    """
    by_rows, by_panels = parts(rows, threads) * panels, parts(panels, threads) * rows
    measured = far_bytes(board) > 0 and board.isa.vl == STRIP_LANES
    finer = in_place and measured and panels >= rows and 3 * by_panels <= 4 * by_rows
    return finer or 4 * by_panels < 3 * by_rows


def most_in_place(board: BoardProfile, mr: int, nr: int, shape: GemmShape) -> int:
    """The maximum kc of a tile of floats with a B in place: what L1 holds of lines that several row
    tiles, or on a core with `packs_both` several panels, read."""
    if shares_rows(board, mr, nr, shape):
        return max(depth_in_place(board, nr, shape.n), LEAST_DEPTH)
    several = _packs_both(board) > 0 and shape.n > nr and 2 * shape.k > 3 * ROWS_DEPTH
    return ROWS_DEPTH if several and _is_beyond_l1(board, shape) else LARGEST


def _packs_both(board: BoardProfile) -> int:
    return (board.costs or board.isa.costs).packs_both


def _is_beyond_l1(board: BoardProfile, shape: GemmShape) -> bool:
    return _bytes_of_b(shape) > caches_of(board).l1


def _bytes_of_b(shape: GemmShape) -> int:
    """Bytes of a B of floats."""
    return shape.k * shape.n * BYTES["f32"]
