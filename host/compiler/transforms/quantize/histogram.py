"""Histograms of tensor values whose bins widen as larger values arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.types import Array

_HALF = 4096  # bins on either side of 0: at least sixteen per quantization step
_LEAST = -120  # exponent of the narrowest bins


@dataclass
class Histogram:
    """Counts of all nonzero values (0 is always exact); a bin is 2^`exponent` wide.

    Widths are powers of two, so bins can be merged exactly in pairs when a value exceeds the range.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2 * _HALF, np.int64))
    exponent: int = _LEAST
    low: float = 0.0
    high: float = 0.0

    def add(self, values: Array) -> None:
        """Count `values`, which must be finite."""
        flat = values.reshape(-1)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen_range(exponent_for(max(-low, high)))
        places = np.floor(flat[flat != 0] * math.ldexp(1.0, -self.exponent)).astype(np.int64)
        places = np.clip(places + _HALF, 0, 2 * _HALF - 1)
        self.counts += np.bincount(places, minlength=2 * _HALF)

    def merged(self, other: Histogram) -> Histogram:
        """Return the sum of two histograms."""
        exponent = max(self.exponent, other.exponent)
        parts = [Histogram(h.counts, h.exponent) for h in (self, other)]
        for part in parts:
            part._widen_range(exponent)
        return Histogram(
            parts[0].counts + parts[1].counts,
            exponent,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    @property
    def centers(self) -> NDArray[np.float64]:
        """Centers of the bins."""
        places = np.arange(-_HALF, _HALF, dtype=np.float64) + 0.5
        centers: NDArray[np.float64] = places * math.ldexp(1.0, self.exponent)
        return centers

    def _widen_range(self, exponent: int) -> None:
        steps = exponent - self.exponent
        if steps <= 0:
            return
        self.exponent = exponent
        if not self.counts.any():
            return
        for _ in range(min(steps, 2 * _HALF.bit_length())):
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros_like(self.counts)
            self.counts[_HALF // 2 : _HALF // 2 + _HALF] = pairs


def exponent_for(largest: float) -> int:
    """Return the exponent of the narrowest bins whose range includes `largest`."""
    if largest == 0.0:
        return _LEAST
    return max(math.frexp(largest)[1] - (_HALF.bit_length() - 1), _LEAST)
