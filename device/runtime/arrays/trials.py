"""Helpers shared by trials of products with other methods."""

from __future__ import annotations

import math
import struct
import sys
from typing import Dict, Tuple

from edgekit.device.runtime.arrays.gemm_library import Block

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


def are_equal(first: Block, second: Block, count: int, code: str, terms: int) -> bool:
    """Whether two results of `count` elements of a struct code are the same; floats, sums of
    `terms` each, up to rounding in another order."""
    width = struct.calcsize(code)
    if first.memory[: count * width] == second.memory[: count * width]:
        return True
    if code not in _EPSILON:
        return False
    rounding = _EPSILON[code] * max(terms, 1)
    if np := sys.modules.get("numpy"):
        a, b = (np.frombuffer(block.memory, code, count) for block in (first, second))
        limit = rounding * float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        return bool(np.allclose(a, b, 0.0, limit, equal_nan=True))
    places = range(0, count * width, max(count // _COMPARED, 1) * width)
    pairs = [
        (
            struct.unpack_from(code, first.memory, at)[0],
            struct.unpack_from(code, second.memory, at)[0],
        )
        for at in places
    ]
    limit = rounding * max((abs(x) for x, _ in pairs if math.isfinite(x)), default=0.0)
    return all(abs(x - y) <= limit or x == y or (x != x and y != y) for x, y in pairs)
