"""Arguments that all products share."""

from __future__ import annotations

import numbers
from typing import Any

from edgekit.device.runtime.errors import InputError

_MOST_THREADS = 256


def whole_number(value: Any, least: int, most: int, wanted: str) -> int:
    """Returns an integer, which may be NumPy's; InputError, beginning with `wanted`, for others."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise InputError(f"{wanted}, found {value!r}")
    return int(value)


def checked_threads(value: Any, what: str) -> int:
    """Returns a number of threads; InputError, beginning with `what`, if there are not so many."""
    return whole_number(value, 1, _MOST_THREADS, f"{what}: expected 1 to {_MOST_THREADS} threads")
