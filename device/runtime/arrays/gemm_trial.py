"""Computes a product again with another method, to find out whether that would be faster."""

from __future__ import annotations

import ctypes
import logging
import math
import struct
import sys
from dataclasses import replace
from typing import Dict, List, Sequence, Tuple

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
from edgekit.device.runtime.errors import InputError

_LOG = logging.getLogger("edgekit")
_MOST_BYTES = 16 << 20  # of a result: a trial needs memory for two
_MOST_TURNS = 1024
_COMPARED = 1024  # elements without NumPy
_EPSILON = 2.0**-23
_turns: Dict[Tuple[object, ...], int] = {}  # of each product: the number of trials so far


def compare_methods(
    library: GemmLibrary, product: Product, how: GemmMethod, threads: int
) -> Tuple[Trial, ...]:
    """Times the product with `how` and with the next method worth trying; empty if there is no
    such method, too little memory, or if results differ."""
    p = product
    shape = p.dtype, p.m, p.n, p.k, threads
    others = _other_methods(library, shape, how)
    if not others or p.m * p.n * C_BYTES > _MOST_BYTES:
        return ()
    if len(_turns) >= _MOST_TURNS:
        _turns.clear()
    turn = _turns[shape] = _turns.get(shape, -1) + 1
    methods = [how, others[turn % len(others)]]
    if turn // len(others) % 2:
        methods.reverse()
    found: List[Trial] = []
    results: List[Block] = []
    for method in methods:
        try:
            block = Block(p.m * p.n * C_BYTES)
        except InputError:
            return ()
        ctypes.memset(block.address, 0, block.bytes)  # no page faults while it is timed
        run = library.prepare(replace(p, c=Operand(block.address, p.n, 1)), method, threads)
        found.append((method_text(method), nanoseconds(run)))
        results.append(block)
    if not _are_equal(p, *results):
        _LOG.warning("gemm: expected equal results of %s, found others", [m for m, _ in found])
        return ()
    return tuple(found)


def _other_methods(
    library: GemmLibrary, shape: Tuple[str, int, int, int, int], how: GemmMethod
) -> Sequence[GemmMethod]:
    """The method without a table first; then other tiles, packing, and split. A product with a
    vector has one kernel."""
    dtype, m, n, k, threads = shape
    if 1 in (m, n):
        return ()
    default = library.default(dtype, m, n, k, threads)
    found = [default]
    for tile in library.tiles(dtype):
        mr, nr = map(int, tile.split("x"))
        if 1 not in (mr, nr):
            mc, nc = (
                -(-size // step) * step for size, step in ((default.mc, mr), (default.nc, nr))
            )
            found.append(replace(default, mr=mr, nr=nr, mc=mc, nc=nc))
    if dtype == "f32":  # bytes are interleaved anyway
        found.append(replace(default, pack_b=not default.pack_b))
    if threads > 1:
        found.append(replace(default, split="n" if default.split == "m" else "m"))
    return [method for method in dict.fromkeys(found) if method != how]


def _are_equal(product: Product, first: Block, second: Block) -> bool:
    """Whether two results are the same, floats up to rounding of sums in another order."""
    size = product.m * product.n
    if first.memory[: size * C_BYTES] == second.memory[: size * C_BYTES]:
        return True
    if product.dtype not in ("f32", "f16"):
        return False
    rounding = _EPSILON * max(product.k, 1)
    if np := sys.modules.get("numpy"):
        a, b = (np.frombuffer(block.memory, np.float32, size) for block in (first, second))
        limit = rounding * float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
        return bool(np.allclose(a, b, 0.0, limit, equal_nan=True))
    places = range(0, size, max(size // _COMPARED, 1))
    pairs = [(_float_at(first, i), _float_at(second, i)) for i in places]
    limit = rounding * max((abs(x) for x, _ in pairs if math.isfinite(x)), default=0.0)
    return all(abs(x - y) <= limit or x == y or (x != x and y != y) for x, y in pairs)


def _float_at(block: Block, index: int) -> float:
    (found,) = struct.unpack_from("f", block.memory, index * C_BYTES)
    return float(found)
