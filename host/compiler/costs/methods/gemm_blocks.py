"""Sizes of the blocks of a product."""

from __future__ import annotations

from edgekit.host.compiler.costs.methods.rule import FEW_PANELS, LONG_VECTORS
from edgekit.host.compiler.costs.methods.tile_cost import parts, round_up
from edgekit.kb.targets.board import BoardProfile, Caches


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
