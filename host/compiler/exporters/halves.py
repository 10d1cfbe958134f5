"""Constants that f16 holds without loss: models whose weights were halved keep their size."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir.types import Array

_LEAST = 32  # values that are worth an operator


def as_halves(data: Array) -> Array | None:
    """`data` of f32 in f16, if that has the very values and there are some."""
    if data.dtype != np.float32 or data.size < _LEAST:
        return None
    with np.errstate(over="ignore"):
        half = data.astype(np.float16)
    return half if np.array_equal(half, data) else None
