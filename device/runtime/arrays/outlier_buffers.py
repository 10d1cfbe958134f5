"""Operands of the outlier split on boards without NumPy, as objects with the buffer protocol."""

from __future__ import annotations

import math
import struct
from typing import Any, Tuple

from edgekit.device.runtime.arrays import buffers
from edgekit.device.runtime.arrays.buffers import Buffer
from edgekit.device.runtime.errors import InputError


def activations_of(x: Any) -> Buffer:
    """Returns the memory of X [m, k]; InputError for other shapes and types."""
    found = buffers.readable(x, "outlier_matmul: x")
    if len(found.shape) != 2 or found.dtype not in ("f32", "f16"):
        raise InputError(
            "outlier_matmul: expected x of 2 dimensions, f32 or f16, "
            f"found {list(found.shape)} {found.dtype}"
        )
    return found


def weights_of(w: Any, scale: Any, most_channels: int) -> Tuple[Buffer, Buffer]:
    """Returns the memory of W [k, n] in int8 and of its scales [n]; InputError for others."""
    values = buffers.readable(w, "outlier weights: w")
    if values.dtype != "s8" or len(values.shape) != 2 or values.shape[0] > most_channels:
        raise InputError(
            f"outlier weights: expected w [k, n] of s8 with at most {most_channels} channels, "
            f"found {values.dtype} {list(values.shape)}"
        )
    factors = buffers.readable(scale, "outlier weights: scale")
    buffers.checked(factors, "f32", (values.shape[1],), "outlier weights: scale")
    for i, (factor,) in enumerate(struct.iter_unpack("f", memoryview(scale).tobytes())):
        if not 0 < factor < math.inf:
            raise InputError(f"outlier weights: expected scales above 0, found {factor} at [{i}]")
    return values, factors
