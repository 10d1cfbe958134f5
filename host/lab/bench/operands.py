"""Operands aligned to cache lines, as in real runtimes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_LINE = 64


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An uninitialized C-contiguous array aligned to 64 bytes, like those of torch and ONNX
    Runtime and the tensors in a model's arena. NumPy's start 16 bytes into a line, so that every
    64-byte vector store touches two lines."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    whole = np.empty(size + _LINE, np.uint8)
    first = -whole.ctypes.data % _LINE
    return whole[first : first + size].view(dtype).reshape(shape)


def aligned(array: Array) -> Array:
    """A C-contiguous copy aligned to a cache line."""
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy
