"""The data address of a NumPy array."""

from __future__ import annotations

import ctypes
from typing import Any

_addressof, _as_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address_of(array: Any) -> int:
    """Returns array.ctypes.data in a quarter of its time, unless the array is empty, read-only or
    not contiguous: a small product takes no longer than that."""
    try:
        return _addressof(_as_buffer(array))
    except (TypeError, ValueError):
        return int(array.ctypes.data)
