"""Computes a product again with another method, to find out whether that would be faster."""

from __future__ import annotations

import ctypes
import logging
from dataclasses import replace
from typing import List, Sequence, Tuple

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
from edgekit.device.runtime.arrays.trials import are_equal, next_turn
from edgekit.device.runtime.errors import InputError

_LOG = logging.getLogger("edgekit")
_MOST_BYTES = 16 << 20  # of a result: a trial needs memory for two


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
    turn = next_turn(shape)
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
    code = "i" if p.dtype in ("s8", "u8") else "f"
    if not are_equal(results[0], results[1], p.m * p.n, code, p.k):
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
