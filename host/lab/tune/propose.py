"""Proposes methods to measure: analytic pruning, then neighbors of the best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgekit.host.compiler.costs.methods.gemm import (
    Method,
    analytic_method,
    half_method,
    method_of_tile,
)
from edgekit.host.compiler.costs.methods.half_product import half_choices
from edgekit.host.compiler.costs.methods.tile_cost import in_order_tile, tile_cost
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.kb.targets.board import BoardProfile, Caches, caches_of
from edgekit.kb.targets.isa import BYTES

_SLACK = 2  # factor by which blocks may exceed the caches they are sized for
_LEAST_K = 16
_MOST_TILES = 8
_WORTH = 1.5  # measure tiles up to this multiple of the least analytic cost


def default_method(board: BoardProfile, product: MatrixProduct) -> Method:
    """The baseline of all measurements: the analytic method, clipped to the product."""
    p = product
    return analytic_method(board, p.shape, p.dtype, p.threads, p.packed).cut(p.shape)


def first_methods(
    board: BoardProfile, product: MatrixProduct, counted: bool, few: bool = False
) -> list[Method]:
    """The default method, then each register tile with its own blocks, packing B or not. If B was
    packed ahead and A is at least half of L2, also with packed blocks of A.

    All pack B if the default does when instructions are `counted`: packing saves cache misses,
    which a count does not show. Of a `few`, each tile packs as the rule does with it.
    """
    p = product
    found = [default_method(board, p)]
    if p.dtype == "f16":
        found += (half_method(*choice).cut(p.shape) for choice in half_choices(board))
        return list(dict.fromkeys(found))
    for mr, nr in _candidate_tiles(board, p):
        made = method_of_tile(board, mr, nr, p.shape, p.dtype, p.threads, p.packed)
        if counted:
            made = replace(made, pack_b=found[0].pack_b)
        found.append(made.cut(p.shape))
        if p.dtype != "f32" or counted or few:
            continue
        if p.packed != "b" and 1 not in (mr, nr):
            found.append(replace(made, pack_b=not made.pack_b).cut(p.shape))
        if p.packed == "b" and _is_large(board, product):
            found.append(_a_near(board, made).cut(p.shape))
    return list(dict.fromkeys(found))


def _is_large(board: BoardProfile, product: MatrixProduct) -> bool:
    m, k = product.shape.m, product.shape.k
    return (
        1 not in (m, product.shape.n) and m * k * BYTES[product.dtype] >= caches_of(board).l2 // 2
    )


def _a_near(board: BoardProfile, made: Method) -> Method:
    """Panels of A in 3/4 of L1, in a packed block of a quarter of L2. Each is read by all tiles of
    a row while panels of B stream from L2 (Goto and van de Geijn, "Anatomy of High-Performance
    Matrix Multiplication", TOMS 2008, with A and B exchanged)."""
    caches, size = caches_of(board), BYTES["f32"]
    rows = min(made.mr, made.nr)
    kc = max(caches.l1 * 3 // 4 // (rows * size) // _LEAST_K * _LEAST_K, _LEAST_K)
    mc = max(caches.l2 // 4 // (kc * size) // made.mr * made.mr, made.mr)
    return replace(made, kc=kc, mc=mc, pack_a=True)


def _candidate_tiles(board: BoardProfile, product: MatrixProduct) -> Iterator[tuple[int, int]]:
    """The tiles worth trying: normal and transposed ones, and that of cores in order. Only the
    smallest with a given number of panels, because panels have equal width anyway."""
    m, n, vl = product.shape.m, product.shape.n, board.isa.vl
    heights = board.isa.columns.of(product.dtype)
    found = set()
    for nv, height in enumerate(heights, 1):
        if n > 1 and (nv == 1 or (nv - 1) * vl < n):
            found.add((min(height, m), nv * vl))
        if m > 1 and (nv == 1 or (nv - 1) * vl < m) and min(height, n) % vl:
            found.add((nv * vl, min(height, n)))
    p = product
    own = in_order_tile(board, p.dtype)
    if own and p.packed != "a" and n > 1 and m > 1:
        found.add(own)
    costs = sorted((tile_cost(board, *each, p.shape, p.dtype, p.packed), each) for each in found)
    return (each for cost, each in costs[:_MOST_TILES] if cost <= _WORTH * costs[0][0])


def neighbors(
    board: BoardProfile, product: MatrixProduct, best: Method, counted: bool
) -> list[Method]:
    """Methods one step from the best: another block size, packing, or axis split among threads.

    None when instructions are `counted`, since a count does not reflect these changes, and for
    f16, whose methods are all among the first.
    """
    if counted or product.dtype == "f16":
        return []
    caches, size = caches_of(board), BYTES[product.dtype]
    found = []
    if not _is_in_l1(product, caches):
        found += [_whole_depth(best, product, caches), *_other_blocks(best)]
    found += _other_packing(best, product)
    if product.threads > 1:
        found.append(replace(best, split="n" if best.split == "m" else "m"))
    cut = (method.cut(product.shape) for method in found)
    kept = [m for m in cut if m != best and _fits_caches(m, caches, size, product.shape.k)]
    return list(dict.fromkeys(kept))


def _is_in_l1(product: MatrixProduct, caches: Caches) -> bool:
    """True if L1 holds the operands, so that blocks do not matter."""
    m, k, n = product.shape.m, product.shape.k, product.shape.n
    return (m * k + k * n) * BYTES[product.dtype] <= caches.l1


def _whole_depth(best: Method, product: MatrixProduct, caches: Caches) -> Method:
    """Accumulates over all of k at once: good if few panels share a block, which then need not
    stay in L1."""
    k = product.shape.k
    rows = caches.l2 // (k * BYTES[product.dtype]) // best.mr * best.mr
    return replace(best, kc=k, mc=min(best.mc, max(rows, best.mr)))


def _other_blocks(best: Method) -> Iterator[Method]:
    for name, step in (("kc", _LEAST_K), ("mc", best.mr), ("nc", best.nr)):
        value = getattr(best, name)
        for other in (value * 2, value // 2):
            rounded = max(other // step * step, step)
            yield replace(best, **{name: rounded})


def _other_packing(best: Method, product: MatrixProduct) -> Iterator[Method]:
    if product.packed != "b" and product.dtype == "f32":  # int8 must be interleaved anyway
        yield replace(best, pack_b=not best.pack_b)
    if product.packed != "a":
        yield replace(best, pack_a=not best.pack_a)


def _fits_caches(method: Method, caches: Caches, size: int, k: int) -> bool:
    kc = min(method.kc, k)
    if 1 in (method.mr, method.nr):
        return True
    return (
        kc * min(method.mr, method.nr) * size <= _SLACK * caches.l1
        and method.mc * kc * size <= _SLACK * caches.l2
        and (kc >= _LEAST_K or kc == k)
    )
