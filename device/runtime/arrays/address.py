"""The address of a NumPy array's values."""

from __future__ import annotations

import ctypes
from typing import Any

_addressof, _as_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address_of(array: Any) -> int:
    """array.ctypes.data, in a quarter of the time unless the array is empty, read-only, or not in
    one piece: small products take no longer than that."""
    try:
        return _addressof(_as_buffer(array))
    except (TypeError, ValueError):
        return int(array.ctypes.data)
