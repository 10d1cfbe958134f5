"""Derives a tensor's scale and zero point from the histogram of its values."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.types import Quant
from edgekit.host.compiler.transforms.quantize.histogram import Histogram

Method = Literal["least_squares", "extremes"]

_LOW, _HIGH = -128, 127
_FRACTIONS = np.linspace(1.0, 0.2, 81)  # candidate clipping limits, relative to the extremes
_TINY = 1e-6  # smaller ranges carry no information; also keeps scale ratios within valid shifts


def quant_of(scale: float, zero_point: int) -> Quant:
    """Per-tensor quantization."""
    return Quant(np.array([scale], np.float32), np.array([zero_point], np.int64))


def range_quant(low: float, high: float) -> Quant:
    """8-bit signed quantization that covers `low` to `high` and represents 0 exactly."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < _TINY:
        return quant_of(1.0 / 256, 0)
    scale = np.float32((high - low) / (_HIGH - _LOW))
    zero = int(np.clip(np.rint(_LOW - low / float(scale)), _LOW, _HIGH))
    return quant_of(float(scale), zero)


def histogram_quant(found: Histogram, method: Method) -> Quant:
    """Quantization of a tensor that covers its extremes or minimizes the mean squared error."""
    if method == "extremes":
        return range_quant(found.low, found.high)
    return range_quant(*least_squares(found))


def least_squares(found: Histogram) -> tuple[float, float]:
    """The range with the least squared error over all counted values. The mean squared rounding
    error is scale² / 12; clipped values are off by their distance to the limit."""
    used = np.flatnonzero(found.counts)
    if not used.size or found.high - found.low < _TINY:
        return found.low, found.high
    values, counts = found.centers[used], found.counts[used].astype(np.float64)
    lows, highs = found.low * _FRACTIONS, found.high * _FRACTIONS
    below, left = _clipping_errors(-values, counts, -lows)
    above, right = _clipping_errors(values, counts, highs)
    scale = (highs[None, :] - lows[:, None]) / (_HIGH - _LOW)
    inside = counts.sum() - left[:, None] - right[None, :]
    error = inside * scale**2 / 12 + below[:, None] + above[None, :]
    row, column = np.unravel_index(int(np.argmin(error)), error.shape)
    return float(lows[row]), float(highs[column])


def _clipping_errors(
    values: NDArray[np.float64], counts: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Squared error and number of values beyond each limit."""
    beyond = np.maximum(values[None, :] - ends[:, None], 0.0)
    return (beyond**2) @ counts, (beyond > 0) @ counts
