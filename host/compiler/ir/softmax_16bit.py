"""16-bit softmax by two linearly interpolated tables, bit-exact with LiteRT's reference kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir.quantization import (
    I64,
    Multiplier,
    multiplier_of,
    round_half_away,
    scale_of,
)
from edgekit.host.compiler.ir.types import Array, Tensor

_STEPS, _BITS = 512, 7  # segments of a table, log2 of the values per segment
_LEAST = -10.0  # limit of the table: e^x below this is treated as e^-10
_LOW, _HIGH = -32768, 32767
_LARGEST_DIFFERENCE = 65535


def softmax_16bit(x: Array, source: Tensor, beta: float) -> Array:
    """Softmax over the last axis; output scale 1/32768, zero point 0."""
    wide = x.astype(np.int64)
    powers = exponentials(source, beta)[wide.max(axis=-1, keepdims=True) - wide]
    total = powers.sum(axis=-1, keepdims=True)
    zeros = 32 - np.array([int(t).bit_length() for t in total.flat]).reshape(total.shape)
    mantissa = ((total << (zeros - 1)) + (1 << 13)) >> 14
    inverse = between(reciprocals(), np.clip(mantissa - (1 << 15) - (1 << 16), _LOW, _HIGH))
    right = 31 - zeros
    quantized = (powers * inverse + (np.int64(1) << (right - 1))) >> right
    capped: Array = np.clip(quantized, 0, _HIGH).astype(np.int16)
    return capped


def exponentials(source: Tensor, beta: float) -> I64:
    """e^(-scale * beta * d) in Q15 for each difference d of stored values."""
    table = _build_table(np.exp, _LEAST, 0.0)
    scaled = difference_factor(source, beta).apply(
        -np.arange(_LARGEST_DIFFERENCE + 1, dtype=np.int64)
    )
    return between(table, np.clip(scaled + _HIGH, _LOW, _HIGH))


def difference_factor(source: Tensor, beta: float) -> Multiplier:
    """Factor from differences of stored values to indices of the exponential table."""
    step = float(np.float32(scale_of(source)) * np.float32(beta))
    return multiplier_of(step / (-_LEAST / _LARGEST_DIFFERENCE))


def reciprocals() -> I64:
    """1 / (1 + x) for x from 0 to 1, in Q15."""
    return _build_table(lambda x: 1 / (1 + x), 0.0, 1.0)


def _build_table(formula: Callable[[Array], Array], first: float, last: float) -> I64:
    """Table entries adjusted to distribute the interpolation error."""
    step = (last - first) / _STEPS
    at = first + np.arange(_STEPS) * step
    here, after, middle = (formula(v) * 2.0**15 for v in (at, at + step, at + step / 2))
    error = round_half_away((after + round_half_away(here)) / 2) - round_half_away(middle)
    entries = round_half_away(here) - round_half_away(error / 2)
    end = round_half_away(formula(np.array([last])) * 2.0**15)
    table: I64 = np.clip(np.append(entries, end), _LOW, _HIGH).astype(np.int64)
    return table


def between(table: I64, x: I64) -> I64:
    """Interpolate `table` linearly at 16-bit values x."""
    index, rest = (x >> _BITS) + _STEPS // 2, x & ((1 << _BITS) - 1)
    value: I64 = table[index] + (((table[index + 1] - table[index]) * rest + 64) >> _BITS)
    return value
