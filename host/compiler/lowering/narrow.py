"""Finds f32 weights that f16, or 8-bit integers with a scale per row, represent exactly.

Files that store weights in fewer bits are imported as f32; kernels that widen the stored weights
compute with the same values, so results are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array, Graph

# Of f32. Smaller weights save little: a face detector of 230 KB would take 1.05 of its time on four
# A53.
_LEAST_BYTES = 1 << 16
_LOW, _HIGH = -128, 127
_DIVISORS = 16  # of a row's least magnitude: it is rarely a larger multiple of the scale
_STEPS = (0, 1, -1, 2, -2)  # units in the last place that rounding may have moved the quotient


@dataclass(frozen=True, eq=False)
class Narrow:
    """Weights [n, k] as f16, or as s8 whose products with `scales` f32 [n] round to the weights."""

    values: Array
    scales: Array | None = None

    @property
    def bits(self) -> int:
        return 8 * self.values.itemsize

    @property
    def suffix(self) -> str:
        """The suffix of names of kernels that widen such weights."""
        return "_f16" if self.scales is None else "_s8"


def narrowed(weights: Array) -> Narrow | None:
    """The narrow form of f32 `weights` [n, k], if there is one and they are large enough."""
    if weights.nbytes < _LEAST_BYTES or weights.dtype != np.float32:
        return None
    return _in_bytes(weights) or _in_halves(weights)


def narrow_bytes(graph: Graph) -> int:
    """Bytes of the constants that the nodes of `graph` use, in their narrow form."""
    names = {name for node in graph.nodes for name in node.inputs if name is not None}
    size = 0
    for data in (graph.tensors[name].data for name in names):
        if data is not None:
            narrow = narrowed(data.reshape(len(data), -1)) if data.ndim > 1 else None
            size += data.nbytes if narrow is None else narrow.values.nbytes
    return size


def _in_halves(weights: Array) -> Narrow | None:
    for some in (weights[:1], weights):
        with np.errstate(over="ignore"):
            half = some.astype(np.float16)
        if not (np.isfinite(half).all() and np.array_equal(half, some)):
            return None
    return Narrow(half)


def _in_bytes(weights: Array) -> Narrow | None:
    scales = np.ones(len(weights), np.float32)
    for rows in (slice(1), slice(len(weights))):  # most weights are ruled out by their first row
        if not _find_scales(weights[rows], scales[rows]):
            return None
    return Narrow(np.rint(weights / scales[:, None]).astype(np.int8), scales)


def _find_scales(weights: Array, scales: Array) -> bool:
    """Write the scale of each row; False if a row has none."""
    size = np.abs(weights)
    most = size.max(axis=1)
    least = np.where(size > 0, size, np.inf).min(axis=1)
    # The bound excludes NaN and infinity, and rows of zeros need no scale.
    open_rows = np.flatnonzero(most > 0)
    if not (np.isfinite(most).all() and np.all(most <= least * np.float32(1 - _LOW))):
        return False
    for divisor, step in _candidates():
        if not open_rows.size:
            return True
        tried = _moved(least[open_rows] / np.float32(divisor), step)
        fits = _is_exact(weights[open_rows], tried)
        scales[open_rows[fits]] = tried[fits]
        open_rows = open_rows[~fits]
    return not open_rows.size


def _candidates() -> Iterator[tuple[int, int]]:
    yield 1, 0
    yield from ((divisor, step) for divisor in range(2, _DIVISORS + 1) for step in _STEPS)


def _moved(values: Array, step: int) -> Array:
    """Positive values moved by `step` units in the last place."""
    return (values.view(np.int32) + np.int32(step)).view(np.float32)


def _is_exact(weights: Array, scales: Array) -> Array:
    """The rows that s8 values times their scale represent."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        quantized = np.rint(weights / scales[:, None])
        exact = (
            (quantized * scales[:, None] == weights) & (quantized >= _LOW) & (quantized <= _HIGH)
        )
    whole: Array = exact.all(axis=1)
    return whole
