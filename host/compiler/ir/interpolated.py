"""16-bit functions by linear interpolation in small tables, bit-exact with LiteRT."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir.quantization import (
    I64,
    quantized_range,
    round_half_away,
    scale_of,
    zero_point_of,
)
from edgekit.host.compiler.ir.types import Array, DType, Tensor

_STEPS = 512  # table segments over the 16-bit range
_BITS = 7  # log2 of the values per segment
_LINES = 24  # sigmoid table segments per unit of x; the argument has 8 fraction bits in each
# Entries of LiteRT's sigmoid table that are one above the nearest integer.
_RAISED = (
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41,
    43, 44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
)  # fmt: skip


def by_lines(formula: Callable[[Array], Array], x: Array, source: Tensor, out: Tensor) -> Array:
    """Quantized formula(real value). Table entries, at every 128th input, are exact except for an
    offset of half the interpolation error in the middle of their segment."""
    low, high = quantized_range(DType.I16)
    zero, scale = zero_point_of(out), np.float32(scale_of(out))
    smallest = scale * np.float32(low - zero)
    largest = scale * np.float32(high - zero)
    step_out = np.float32(high - low + 1) / (largest - smallest)  # LiteRT's: not quite 1 / scale
    first = np.float32(scale_of(source)) * np.float32(low - zero_point_of(source))
    last = np.float32(scale_of(source)) * np.float32(high - zero_point_of(source))
    step = (last - first) / np.float32(_STEPS)

    def made(at: Array) -> Array:
        with np.errstate(all="ignore"):
            y = np.asarray(formula(at.astype(np.float64))).astype(np.float32)
        y = np.where(np.isnan(y) | np.isneginf(y), smallest, y)  # logarithms of x ≤ 0
        return y * step_out + np.float32(zero)

    at = first + np.arange(_STEPS, dtype=np.float32) * step
    here = round_half_away(made(at))
    after = made(first + np.arange(1, _STEPS + 1, dtype=np.float32) * step)
    middle = round_half_away((after + here) / np.float32(2))
    with np.errstate(all="ignore"):
        error = middle - round_half_away(made(at + step / np.float32(2)))
        entries = np.nan_to_num(here - round_half_away(error / np.float32(2)), posinf=high)
    table = np.append(entries, round_half_away(made(np.asarray([last]))))
    table = np.clip(table, low, high).astype(np.int64)
    index, rest = (x.astype(np.int64) >> _BITS) + _STEPS // 2, x.astype(np.int64) & 127
    slope = (table[index + 1] - table[index]).astype(np.int16).astype(np.int64)
    quantized: Array = (table[index] + ((slope * rest + 64) >> _BITS)).astype(np.int16)
    return quantized


def sigmoid(x: Array, source: Tensor) -> Array:
    """1 / (1 + e^−x), with scale 2^−15."""
    argument = _fixed_point_argument(x, source, powers=(0,))
    value = _interpolate_sigmoid(np.abs(argument), 9)
    quantized = np.where(argument >= 0, value + 512, (1 << 25) - value + 511) >> 10
    return quantized.astype(np.int16)


def tanh(x: Array, source: Tensor) -> Array:
    """tanh x with scale 2^−15, computed as 2 · sigmoid(2 x) − 1."""
    argument = _fixed_point_argument(x, source, powers=(0, 1))
    value = _interpolate_sigmoid(np.abs(argument), 8)
    quantized = np.where(argument >= 0, value - (1 << 23) + 128, (1 << 23) - value + 127) >> 8
    return quantized.astype(np.int16)


def _fixed_point_argument(x: Array, source: Tensor, powers: tuple[int, ...]) -> I64:
    """x · 3 · 2^12 as integer; exact for scales of 2^(p − 12) with p in `powers`."""
    scale = scale_of(source)
    power = 12 + math.log2(scale)
    if any(abs(power - p) < 1e-3 for p in powers):
        return x.astype(np.int64) * (3 << round(power))
    factor, shift = scale * 4096 * 3, 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    rounding = 1 << (shift - 1) if shift else 0
    argument: I64 = (x.astype(np.int64) * int(factor) + rounding) >> shift
    return argument


def _interpolate_sigmoid(magnitude: I64, bits: int) -> I64:
    """Interpolate in the sigmoid table at `magnitude`, which has `bits` fraction bits."""
    table = np.floor(65536 / (1 + np.exp(-np.arange(256) / _LINES)) + 0.5).astype(np.int64)
    table[list(_RAISED)] += 1
    index = np.minimum(magnitude >> bits, 254)
    rest = magnitude & ((1 << bits) - 1)
    value = (table[index] << bits) + rest * (table[index + 1] - table[index])
    largest = 0x7FFF << 10 if bits == 9 else 0xFFFF << 8
    return np.where(magnitude >> bits >= 255, largest, value)
