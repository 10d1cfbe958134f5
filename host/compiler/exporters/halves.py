"""Constants that f16 represents exactly, so that models with f16 weights keep their size."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir.types import Array

_LEAST = 32  # elements; below this an extra operator costs more than it saves


def as_halves(data: Array) -> Array | None:
    """`data` (f32) as f16 if that is lossless and `data` is not tiny, else None."""
    if data.dtype != np.float32 or data.size < _LEAST:
        return None
    with np.errstate(over="ignore"):
        half = data.astype(np.float16)
    return half if np.array_equal(half, data) else None
