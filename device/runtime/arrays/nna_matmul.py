"""The matrix product on the native NNA emulator; needs no NumPy."""

from __future__ import annotations

import functools
import sys
import time
from ctypes import string_at
from typing import Any, Optional

from edgekit.device.runtime.arrays import buffers, sampling
from edgekit.device.runtime.arrays.buffers import Buffer, place_of_bytes
from edgekit.device.runtime.arrays.calls import NNA, Call, dense_text
from edgekit.device.runtime.arrays.find import find_library, find_nna_chip
from edgekit.device.runtime.arrays.nna_account import make_account, matmul_work
from edgekit.device.runtime.arrays.nna_chip import NNA2, NnaChip, checked_chip
from edgekit.device.runtime.arrays.nna_native import MatmulShape, NativeNna, Outcome
from edgekit.device.runtime.arrays.sampling import TimedCall
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS

_COPIES = 5  # times the bytes of F: with its slices, which are objects, and their concatenation


def nna_matmul(a: Any, f: Any, account: bool = False, *, chip: Optional[NnaChip] = None) -> Any:
    """A [M, K] s8 by F [K, N] s8 -> [M, N] s32 exact modulo 2^32, or (that, NnaAccount).

    `chip`: by default that of the board, which also runs its models; NNA2 on a board without.
    M, K, N >= 1. Operands are NumPy arrays, or other objects with the buffer protocol, whose result
    is a memoryview. InputError for other shapes and types.
    """
    chip = board_chip() if chip is None else checked_chip(chip)
    left, right = _bytes_of("a", a), _bytes_of("f", f)
    check_inner(left.shape, right.shape)
    shape = left.shape[0], right.shape[1]
    if buffers.has_numpy(a, f):
        sums = buffers.empty_array(sys.modules["numpy"], shape, "int32", "nna")
        address = sums.ctypes.data
    else:
        sums, result = buffers.fresh("s32", shape, "nna")
        address = result.address
    sampler, start = sampling.due(1), time.perf_counter_ns()
    counters, _ = run_native(left, right, address, chip, account)
    if sampler is not None:
        ns = time.perf_counter_ns() - start
        call = Call(NNA, dense_text("s8", shape[0], left.shape[1], shape[1]), "emulated")
        sampling.record(sampler, TimedCall(call, ns))
    if not account:
        return sums
    work = matmul_work(shape[0], left.shape[1], shape[1])
    return sums, make_account(chip, counters, work)


def check_inner(a: Any, f: Any) -> None:
    """InputError if matrices of these shapes cannot be multiplied."""
    if a[1] != f[0]:
        raise InputError(f"nna: expected f of {a[1]} rows for a {list(a)}, found {list(f)}")


def run_native(
    a: Buffer, f: Buffer, sums: int, chip: NnaChip, account: bool, trace: int = 0
) -> Outcome:
    """Writes the product to the address `sums`; returns the counters, and `trace` events."""
    (m, k), n = a.shape, f.shape[1]
    buffers.require_memory(_COPIES * k * n, "nna", "copies", f.shape)
    groups, data = n // CHANNELS, string_at(f.address, k * n)
    whole = groups * CHANNELS
    rows = range(0, k * n, n)
    starts = (at + first for first in range(0, whole, CHANNELS) for at in rows)
    features = b"".join(data[at : at + CHANNELS] for at in starts)
    tail = b"".join(data[at + whole : at + n] for at in rows)
    places = (a.address, place_of_bytes(features)[0], place_of_bytes(tail)[0], sums)
    return open_native().matmul(chip, MatmulShape(m, k, n), places, account, trace)


@functools.lru_cache(maxsize=1)
def board_chip() -> NnaChip:
    """The chip of this board, or NNA2 if it has none."""
    path = find_nna_chip()
    return NNA2 if path is None else NnaChip.read(path)


@functools.lru_cache(maxsize=1)
def open_native() -> NativeNna:
    """The emulator of this machine's kernels library."""
    from edgekit.device.runtime.shared_library import open_library

    return NativeNna(open_library(find_library()[0], "a kernels library"))


def _bytes_of(name: str, value: Any) -> Buffer:
    found = buffers.readable(value, f"nna: {name}")
    if found.dtype != "s8" or len(found.shape) != 2 or 0 in found.shape:
        hint = "" if buffers.has_numpy(value) else buffers.shape_hint(found)
        raise InputError(
            f"nna: expected {name} of s8 with 2 dimensions of at least 1, found {found.dtype} "
            f"{list(found.shape)}{hint}"
        )
    return found
