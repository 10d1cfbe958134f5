"""Estimates a product's cost from a few small parts of it.

The loop nest repeats itself: a row of register tiles costs what the one before it cost. So the
cost is linear in the number of row panels, in that of column panels once these fill L1, and in the
blocks of k; two small extents per axis determine the line. Parts keep the strides of the whole
matrices, so that cache sets conflict as they would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.costs.methods.tile_cost import parts
from edgekit.host.lab.tune.products import MatrixProduct
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.isa import BYTES

_ROW_PANELS = 2, 5  # of the two parts; the first row of panels finds B outside L1
_STRIP_BYTES = 24576  # EK_GEMM_STRIP_BYTES in device/kernels/gemm/blocks.h
_DEPTH_BLOCKS = 2  # the second is the first that adds to C
_WORTH = 0.5  # share of the whole product's operations up to which parts are worth it


@dataclass(frozen=True)
class WeightedPart:
    """A part of a product; the weighted costs of all of them sum up to the product's."""

    shape: GemmShape
    weight: float


def parts_of(product: MatrixProduct, method: Method, vl: int) -> tuple[WeightedPart, ...]:
    """Parts for a method on a core with vectors of `vl` lanes; the whole product alone if it has a
    vector, is of f16, runs on several threads, or is hardly larger than its parts."""
    shape = product.shape
    whole = (WeightedPart(shape, 1.0),)
    has_vector = 1 in (shape.m, shape.n, method.mr, method.nr)
    if has_vector or product.threads > 1 or product.dtype == "f16":
        return whole
    transposed = method.is_transposed(vl)
    depth = min(shape.k, _DEPTH_BLOCKS * method.kc)
    panel = (method.mr if transposed else method.nr) * min(method.kc, depth) * BYTES[product.dtype]
    strip = max(_STRIP_BYTES // panel, 2)
    of_rows, of_vectors = (1, _ROW_PANELS), (vl, (strip, 2 * strip))
    of_m, of_n = (of_vectors, of_rows) if transposed else (of_rows, of_vectors)
    found = tuple(
        WeightedPart(GemmShape(m, depth, n), of_row * of_column * shape.k / depth)
        for m, of_row in _points(shape.m, method.mr, *of_m)
        for n, of_column in _points(shape.n, method.nr, *of_n)
    )
    work = sum(part.shape.operations for part in found)
    return found if work <= _WORTH * shape.operations else whole


def _points(
    extent: int, panel: int, unit: int, counts: tuple[int, int]
) -> Iterator[tuple[int, float]]:
    """Extents of these counts of panels, with the weights that extrapolate to the whole one, whose
    panels are of equal width in `unit` elements; what the last unit lacks stays."""
    units = parts(extent, unit)
    panels = parts(units, max(panel // unit, 1))
    if panels <= sum(counts):
        yield extent, 1.0
        return
    missing = units * unit - extent
    small, large = (round(count * units / panels) * unit - missing for count in counts)
    beyond = (extent - small) / (large - small)
    yield small, 1.0 - beyond
    yield large, beyond
