"""Runs the libraries that *_products.c are part of on this machine."""

from __future__ import annotations

import ctypes
from pathlib import Path


class _Model(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("weights", "arena", "state", "pool", "stamps")]


def run_cases(library: Path, cases: bytes, size: int, threads: int) -> bytes:
    """The `size` bytes that the library makes of encoded cases."""
    lib = ctypes.CDLL(str(library))
    lib.ek_pool_create.restype = ctypes.c_void_p
    lib.ek_pool_destroy.argtypes = [ctypes.c_void_p]
    pool = lib.ek_pool_create(threads) if threads > 1 else None
    given = ctypes.create_string_buffer(cases)
    made = ctypes.create_string_buffer(max(size, 1))
    inputs = (ctypes.c_void_p * 1)(ctypes.addressof(given))
    outputs = (ctypes.c_void_p * 1)(ctypes.addressof(made))
    assert lib.ek_run(ctypes.byref(_Model(pool=pool)), inputs, outputs) == 0
    if pool:
        lib.ek_pool_destroy(pool)
    return made.raw[:size]
