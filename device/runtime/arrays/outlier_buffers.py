"""Operands of the outlier split: objects with the buffer protocol, for boards without NumPy, and
float weights."""

from __future__ import annotations

import math
import struct
from array import array
from typing import Any, Tuple

from edgekit.device.runtime.arrays import buffers
from edgekit.device.runtime.arrays.buffers import Buffer
from edgekit.device.runtime.errors import InputError

_LEAST_SCALE = 2.0**-126  # the least normal float


def activations_of(x: Any) -> Buffer:
    """Returns the memory of X [m, k]; InputError for other shapes and types."""
    found = buffers.readable(x, "outlier_matmul: x")
    if len(found.shape) != 2 or found.dtype not in ("f32", "f16"):
        raise InputError(
            "outlier_matmul: expected x of 2 dimensions, f32 or f16, "
            f"found {list(found.shape)} {found.dtype}{buffers.shape_hint(found)}"
        )
    return found


def weights_of(w: Any, scale: Any, most_channels: int) -> Tuple[Buffer, Buffer]:
    """Returns the memory of W [k, n] in int8 and of its scales [n]; InputError for others."""
    values = _checked_weights(w, "s8", most_channels)
    factors = buffers.readable(scale, "outlier weights: scale")
    buffers.checked(factors, "f32", (values.shape[1],), "outlier weights: scale")
    for i, (factor,) in enumerate(struct.iter_unpack("f", memoryview(scale).tobytes())):
        if not 0 < factor < math.inf:
            raise InputError(f"outlier weights: expected scales above 0, found {factor} at [{i}]")
    return values, factors


def quantized(w: Any, most_channels: int) -> Tuple[Buffer, Buffer]:
    """Returns W [k, n] of f32 in int8 and a scale for each of its columns, as NumPy computes them;
    InputError for other types and for values that are not finite."""
    k, n = _checked_weights(w, "f32", most_channels).shape
    floats = array("f", memoryview(w).tobytes())
    for i, value in enumerate(floats):
        if not math.isfinite(value):
            raise InputError(
                f"outlier weights: expected finite values, found {value} at channel {i // n}, "
                f"output {i % n}"
            )
    largest = (max(map(abs, floats[column::n])) for column in range(n))
    scale = array("f", (max(x / 127, _LEAST_SCALE) if x else 1.0 for x in largest))
    quotients = array("f", (value / scale[i % n] for i, value in enumerate(floats)))
    values = buffers.readable(array("b", map(round, quotients)), "outlier weights: w")
    return values._replace(shape=(k, n)), buffers.readable(scale, "outlier weights: scale")


def quantized_array(np: Any, w: Any) -> Tuple[Any, Any]:
    """Returns int8 values in C order and a scale per column; InputError for one that is not
    finite."""
    with np.errstate(over="ignore"):  # infinity is rejected below
        w = w.astype(np.float32)
    if not np.isfinite(w).all():
        row, column = (int(at) for at in np.argwhere(~np.isfinite(w))[0])
        raise InputError(
            f"outlier weights: expected finite values, found {w[row, column]} at channel "
            f"{row}, output {column}"
        )
    largest = np.abs(w).max(axis=0, initial=0)
    scale = np.where(largest > 0, largest / np.float32(127), 1).astype(np.float32)
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    return np.ascontiguousarray(np.rint(w / scale).astype(np.int8)), scale


def _checked_weights(w: Any, dtype: str, most_channels: int) -> Buffer:
    found = buffers.readable(w, "outlier weights: w")
    if found.dtype != dtype or len(found.shape) != 2 or found.shape[0] > most_channels:
        raise InputError(
            f"outlier weights: expected w [k, n] of {dtype} with at most {most_channels} channels, "
            f"found {found.dtype} {list(found.shape)}{buffers.shape_hint(found)}"
        )
    return found
