"""Helpers shared by trials of products with other methods."""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from typing import Dict, Tuple

_MOST_TURNS = 1024
_COMPARED = 1024  # elements without NumPy
_EPSILON = {"f": 2.0**-23, "d": 2.0**-52}
_turns: Dict[Tuple[object, ...], int] = {}


def next_turn(product: Tuple[object, ...]) -> int:
    """Returns the number of earlier trials of a product."""
    if len(_turns) >= _MOST_TURNS:
        _turns.clear()
    _turns[product] = _turns.get(product, -1) + 1
    return _turns[product]


def are_equal(first: int, second: int, count: int, code: str, terms: int) -> bool:
    """Whether two results of `count` elements of a struct code, at two addresses, are the same;
    floats, sums of `terms` each, up to rounding in another order."""
    size = count * (8 if code == "d" else 4)
    a, b = (memoryview((ctypes.c_char * size).from_address(at)).cast("B") for at in (first, second))
    if bytes(a) == bytes(b):
        return True
    if code not in _EPSILON:
        return False
    rounding = _EPSILON[code] * max(terms, 1)
    if np := sys.modules.get("numpy"):
        x, y = (np.frombuffer(each, code, count) for each in (a, b))
        limit = rounding * float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
        return bool(np.allclose(x, y, 0.0, limit, equal_nan=True))
    step = max(count // _COMPARED, 1)
    xs, ys = (
        (each.cast("d") if code == "d" else each.cast("f"))[::step].tolist() for each in (a, b)
    )
    limit = rounding * max(filter(math.isfinite, map(abs, xs)), default=0.0)
    if all(map(limit.__ge__, map(abs, map(operator.sub, xs, ys)))):
        return True
    return all(abs(x - y) <= limit or x == y or (x != x and y != y) for x, y in zip(xs, ys))
