"""Operands as runtimes have them: each begins at a cache line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_LINE = 64


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """A C-contiguous array of any content at a multiple of 64 bytes, as torch's own, those of ONNX
    Runtime and the tensors of a model's arena. NumPy's begin 16 bytes into a line, so that every
    vector of 64 bytes that is stored touches two."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    whole = np.empty(size + _LINE, np.uint8)
    first = -whole.ctypes.data % _LINE
    return whole[first : first + size].view(dtype).reshape(shape)


def aligned(array: Array) -> Array:
    """A C-contiguous copy of it that begins at a line."""
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy
