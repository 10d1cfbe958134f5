"""Computes a product once more with another method, to find out whether that would be faster."""

from __future__ import annotations

import ctypes
import logging
from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from edgekit.device.runtime.arrays.calls import method_text
from edgekit.device.runtime.arrays.gemm_library import (
    C_BYTES,
    Block,
    GemmLibrary,
    GemmMethod,
    Operand,
    Product,
)
from edgekit.device.runtime.arrays.sampling import Trial, nanoseconds
from edgekit.device.runtime.arrays.trials import are_equal
from edgekit.device.runtime.errors import InputError

_LOG = logging.getLogger("edgekit")
_MOST_BYTES = 16 << 20  # of a result: a trial needs memory for another one
_MOST_PRODUCTS = 256
_FEWEST = 3  # trials after which hosts believe a time
_HOPELESS = 1.3  # a method that never took less than this in relation to the call's is given up
_Shape = Tuple[str, int, int, int, int]


class GemmTrials:
    """The trials of this process's products so far."""

    def __init__(self) -> None:
        self._ratios: Dict[_Shape, Dict[GemmMethod, List[float]]] = {}

    def next(
        self, library: GemmLibrary, product: Product, how: GemmMethod, threads: int
    ) -> Optional[GemmTrial]:
        """A trial of the method worth it most; None if there is no other method, or too little
        memory."""
        p = product
        shape = p.dtype, p.m, p.n, p.k, threads
        if not _is_dense(p) or p.m * p.n * C_BYTES > _MOST_BYTES:
            return None
        if len(self._ratios) >= _MOST_PRODUCTS:
            self._ratios.clear()
        ratios = self._ratios.setdefault(shape, {})
        usual = library.default(*shape)
        others = [
            each
            for each in _other_methods(library, shape, usual)
            if each != how and (each == usual or min(ratios.get(each, ()), default=0.0) < _HOPELESS)
        ]
        if not others:
            return None
        other = min(others, key=lambda each: _turn(each == usual, len(ratios.get(each, ()))))
        try:
            return GemmTrial(library, p, other, threads, ratios.setdefault(other, []))
        except InputError:
            return None


class GemmTrial:
    """One computation with `other`, before or after the call's own: each time the other way round,
    since the second finds its operands in the caches."""

    def __init__(
        self,
        library: GemmLibrary,
        product: Product,
        other: GemmMethod,
        threads: int,
        ratios: List[float],
    ) -> None:
        self._product, self._other, self._ratios = product, other, ratios
        self.goes_first = len(ratios) % 2 == 1
        p = product
        self._result = Block(p.m * p.n * C_BYTES)
        c = Operand(self._result.address, p.c.row, p.c.col)
        self._library, self._again, self._threads = library, replace(p, c=c), threads
        for address in (self._result.address, p.c.address):
            ctypes.memset(address, 0, self._result.bytes)  # no page faults while it is timed
        self._ns = 0

    def run(self) -> None:
        """Computes and times the product; the library then has to prepare the call's own."""
        self._ns = nanoseconds(self._library.prepare(self._again, self._other, self._threads))

    def compare(self, how: GemmMethod, ns: int) -> Sequence[Trial]:
        """The times of both methods, after the call's own took `ns`; empty if results differ."""
        p = self._product
        trials = (method_text(how), ns), (method_text(self._other), self._ns)
        self._ratios.append(self._ns / max(ns, 1))
        code = "i" if p.dtype in ("s8", "u8") else "f"
        if are_equal(p.c.address, self._result.address, p.m * p.n, code, p.k):
            return trials
        _LOG.warning("gemm: expected equal results of %s, found others", [m for m, _ in trials])
        return ()


def _turn(is_usual: bool, trials: int) -> int:
    """A row of the table is doubted first: hosts compare everything with the method without it."""
    return trials // _FEWEST * _FEWEST if is_usual else trials + 1


def _is_dense(product: Product) -> bool:
    """Whether the result's elements fill its memory, by rows or by columns."""
    p = product
    return (p.c.row, p.c.col) in ((p.n, 1), (1, p.m))


def _other_methods(library: GemmLibrary, shape: _Shape, usual: GemmMethod) -> Sequence[GemmMethod]:
    """The method without a table first; then other tiles, packing, and split. A product with a
    vector has one kernel."""
    dtype, m, n, _, threads = shape
    if 1 in (m, n):
        return ()
    found = [usual]
    for tile in library.tiles(dtype):
        mr, nr = map(int, tile.split("x"))
        if 1 not in (mr, nr):
            mc, nc = (-(-size // step) * step for size, step in ((usual.mc, mr), (usual.nc, nr)))
            found.append(replace(usual, mr=mr, nr=nr, mc=mc, nc=nc))
    if dtype == "f32":  # bytes are interleaved anyway
        found.append(replace(usual, pack_b=not usual.pack_b))
    if threads > 1:
        found.append(replace(usual, split="n" if usual.split == "m" else "m"))
    return list(dict.fromkeys(found))
