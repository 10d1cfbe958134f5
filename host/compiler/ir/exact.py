"""Finds exact f32 sums: of integers or multiples of a power of two, below 2^24 times that unit.

Networks of integer exporters hold integers in floats, and round, cast or compare behind their sums.
No kernel rounds such a sum, in whatever order it adds, unless a pass or a kernel scales the weights
by a factor with a fraction, or adds the products to a bias with one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.ops import (
    AveragePool2D,
    MatMul,
    Mean,
    ReduceSum,
    Weighted,
)
from edgekit.host.compiler.ir.types import Activation, Array, Node, Operator, Tensor

_DIGITS = 24  # of f32
_WHOLE = 12  # digits of the weights of integer networks; of rows of trained weights: 14 and more
_BIASED = 20  # digits that bias and weights may have together: sums need some more
_SAMPLE = 64  # values that show whether a tensor has fractions


def digits(rows: Array) -> int:
    """Binary digits in which all values of a row are multiples of one power of two: the most of all
    rows. `rows`: floats [rows, values]; infinite values count as 1024 digits."""
    if not np.all(np.isfinite(rows)):
        return 1024
    exponent, lowest = _exponents(rows)
    nonzero = rows != 0
    top = np.max(exponent, axis=1, initial=-4096, where=nonzero)
    bottom = np.min(lowest, axis=1, initial=4096, where=nonzero)
    return int(max(np.max(top - bottom, initial=0), 0))


def can_be_exact(rows: Array, bias: Array | None = None) -> bool:
    """Whether sums of integers by f32 weights `rows` [output channels, weights] are exact if they
    are below 2^24, in whatever order they are added to `bias` [output channels]."""
    if digits(rows[:1]) > _WHOLE or digits(rows) > _WHOLE:  # the first row decides most cases
        return False
    return bias is None or digits(np.column_stack([rows, bias])) <= _BIASED


def rows_of(op: Operator, weights: Array) -> Array:
    """Weights of a `Weighted` operator as [output channels, weights of a channel]. The channels are
    first or last, also where the other axes are flattened."""
    rows = np.moveaxis(weights, -1 if op.weight_axis else 0, 0)
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def is_power_of_two(factor: Array) -> bool:
    """Whether f32 products with all values of `factor` are exact."""
    return bool(np.all(np.isfinite(factor) & (np.abs(np.frexp(factor)[0]) == 0.5)))


def sums_are_exact(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> bool:
    """Whether all f32 sums of a product, sum or mean are exact in any order, for these values of
    its operands. Other operators' sums are taken for inexact."""
    op = node.op
    x = [None if name is None else values[name] for name in node.inputs]
    given = [v for v in x if v is not None]
    if any(v.dtype != np.float32 or not np.all(np.isfinite(v)) for v in given):
        return False
    if isinstance(op, AveragePool2D | Mean | ReduceSum):
        shape = given[0].shape
        added = op.window if isinstance(op, AveragePool2D) else [shape[a] for a in op.axes]
        return _is_below(math.prod(added) * _largest(given[0]), given[:1])
    if not isinstance(op, Weighted | MatMul) or not all(map(_looks_whole, given[:2])):
        return False
    bias, factors = None, given[:2]
    if isinstance(op, Weighted):
        rows = rows_of(op, factors[1])
        if not can_be_exact(rows):
            return False  # passes may scale them
        bias = given[2] if len(x) > 2 and x[2] is not None else None
        bias = bias if bias is not None and can_be_exact(rows, bias) else None  # else added later
        op = dataclasses.replace(op, activation=Activation.NONE)
    # The sum of sizes is at least as large as any part of a sum, in any order.
    ins = [None if name is None else tensors[name] for name in node.inputs]
    sizes = [np.abs(f) for f in factors]
    largest = _largest(op.reference(sizes, ins[:2], [tensors[node.outputs[0]]])[0])
    largest += 0.0 if bias is None else _largest(bias)
    return _is_below(largest, factors, bias)


def _looks_whole(values: Array) -> bool:
    return digits(values.reshape(1, -1)[:, :_SAMPLE]) <= _DIGITS


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0))


def _is_below(largest: float, factors: list[Array], added: Array | None = None) -> bool:
    """Whether f32 holds sums up to `largest` of products of `factors`, and `added`."""
    unit = sum(_unit_exponent(f) for f in factors)
    if added is not None:
        unit = min(unit, _unit_exponent(added))
    return largest < math.ldexp(1.0, _DIGITS + unit)


def _unit_exponent(values: Array) -> int:
    """The exponent of the largest power of two of which all values are multiples; 0 for zeros."""
    found = _exponents(values[values != 0])[1]
    return int(np.min(found)) if found.size else 0


def _exponents(values: Array) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Exponents of a power of two above each value, and of its lowest binary digit."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return exponent, exponent - 53 + lowest
