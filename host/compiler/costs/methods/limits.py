"""What a method that was measured on one product is on others."""

from __future__ import annotations

from dataclasses import replace

from edgekit.host.compiler.costs.methods.gemm import Method, half_method
from edgekit.host.compiler.costs.methods.rule import K_STEP, LARGEST
from edgekit.host.compiler.costs.methods.tile_cost import in_order_tile
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile, Caches, caches_of
from edgekit.kb.targets.isa import BYTES


def limits_of(method: Method, shape: GemmShape, board: BoardProfile, dtype: str) -> Method:
    """Generalizes a method that was measured on one product to other products.

    A block or tile that covered the entire product was no limit there. On larger products it grows
    to what caches and registers hold (or stays, if larger) instead of the measured product's size.
    """
    if dtype == "f16":
        return half_method(method.mr, method.nr, method.pack_b)
    mr, nr = _whole_tile(method, shape, board, dtype)
    kc, mc, nc = _cache_blocks(caches_of(board), mr, nr, dtype)
    return replace(
        method,
        mr=mr,
        nr=nr,
        mc=max(method.mc, mc) if method.mc >= shape.m else method.mc,
        kc=max(method.kc, kc) if method.kc >= shape.k else method.kc,
        nc=max(method.nc, nc) if method.nc >= shape.n else method.nc,
    )


def _whole_tile(
    method: Method, shape: GemmShape, board: BoardProfile, dtype: str
) -> tuple[int, int]:
    """The tile, extended to the maximum height if it was as tall as the product."""
    vl, heights = board.isa.vl, board.isa.columns.of(dtype)
    transposed = method.nr % vl != 0
    mr, nr = method.mr, method.nr
    if 1 in (shape.m, shape.n) or (mr % vl != 0 and transposed):
        return mr, nr
    if (mr, nr) == in_order_tile(board, dtype):
        return mr, nr
    nv = min((mr if transposed else nr) // vl, len(heights))
    if transposed and nr >= shape.n:
        return mr, max(nr, heights[nv - 1] - (heights[nv - 1] % vl == 0))
    if not transposed and mr >= shape.m:
        return max(mr, heights[nv - 1]), nr
    return mr, nr


def _cache_blocks(caches: Caches, mr: int, nr: int, dtype: str) -> tuple[int, int, int]:
    """kc, mc, nc that fill their caches; products with a vector need no blocks."""
    if 1 in (mr, nr):
        return LARGEST, LARGEST, LARGEST
    size, room = BYTES[dtype], caches.l3 if dtype == "f32" else caches.l2
    kc = max(caches.l1 * 7 // 8 // ((mr + nr) * size) // K_STEP * K_STEP, K_STEP)
    mc = max(caches.l2 // 2 // (kc * size) // mr * mr, mr)
    nc = max(room // 2 // (kc * size) // nr * nr, nr)
    return kc, mc, nc
