"""Keeps NumPy's matrix products on one thread.

After each product, OpenBLAS's threads spin while they wait for the next one. Between the short
products of a reference, spinning takes several times the CPU time of the products.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_SPELLINGS = (
    "scipy_openblas_{}_num_threads64_",  # in wheels of NumPy 2
    "openblas_{}_num_threads64_",  # in wheels of NumPy 1
    "openblas_{}_num_threads",  # in distributions
)


@contextmanager
def one_thread() -> Iterator[None]:
    """Does nothing if NumPy uses another library than OpenBLAS, or another system than Linux."""
    found = _openblas()
    if found is None:
        yield
        return
    get, put = found
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@functools.cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """The functions that return and set the number of threads."""
    try:
        lines = _MAPS.read_text().splitlines()
        paths = {line.split(maxsplit=5)[5] for line in lines if "openblas" in line}
        libraries = [ctypes.CDLL(path) for path in sorted(paths)]
    except OSError:
        return None
    for library in libraries:
        for name in _SPELLINGS:
            if hasattr(library, name.format("set")):
                return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None
