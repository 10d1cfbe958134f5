"""Measures the cost of a method lookup on this machine."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.arrays.gemm_library import GemmLibrary

_FEW = 100
_ROUNDS = 200
_TIMES = 15  # take the minimum: runs this short are often disturbed
_TRIES = 40_000
_ENOUGH = 5000  # shapes, many more than the library caches answers for
_LARGEST = 4096


@dataclass(frozen=True)
class LookupSpeed:
    """Nanoseconds per lookup: of a shape that was looked up before, and of a new one with an exact
    row; None if the table has too few rows to find such shapes."""

    repeated: float
    exact: float | None


def lookup_speed(library: Path, table: Path) -> LookupSpeed:
    """Measures single-threaded f32 lookups, from C."""
    opened = GemmLibrary(library, table)
    source = random.Random(0)
    shapes = [(source.randint(1, _LARGEST),) * 3 for _ in range(_FEW)]
    shapes += [_random_shape(source) for _ in range(_FEW)]
    opened.lookup_nanoseconds("f32", shapes, 1)
    repeated = min(opened.lookup_nanoseconds("f32", shapes, _ROUNDS) for _ in range(_TIMES))
    exact = [
        shape
        for shape in (_random_shape(source) for _ in range(_TRIES))
        if opened.lookup("f32", *shape)[1] == "exact"
    ]
    speed = None
    if len(exact) >= _ENOUGH:
        speed = min(opened.lookup_nanoseconds("f32", exact, 1) for _ in range(_TIMES))
    opened.close()
    return LookupSpeed(repeated, speed)


def _random_shape(source: random.Random) -> tuple[int, int, int]:
    m, n, k = (round(_LARGEST ** source.random()) for _ in range(3))
    return m, n, k
