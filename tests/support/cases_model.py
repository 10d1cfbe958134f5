"""Runs the libraries built from *_products.c on this machine, and describes their cases."""

from __future__ import annotations

import ctypes
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np


class _Model(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("weights", "arena", "state", "pool", "stamps")]


def run_cases(library: Path, cases: bytes, size: int, threads: int) -> bytes:
    """Run the library on encoded cases; return its `size` bytes of output."""
    lib = ctypes.CDLL(str(library))
    pool = None
    if threads > 1:
        lib.ek_pool_create.restype = ctypes.c_void_p
        lib.ek_pool_destroy.argtypes = [ctypes.c_void_p]
        pool = lib.ek_pool_create(threads)
    given = ctypes.create_string_buffer(cases)
    made = ctypes.create_string_buffer(max(size, 1))
    inputs = (ctypes.c_void_p * 1)(ctypes.addressof(given))
    outputs = (ctypes.c_void_p * 1)(ctypes.addressof(made))
    assert lib.ek_run(ctypes.byref(_Model(pool=pool)), inputs, outputs) == 0
    if pool:
        lib.ek_pool_destroy(pool)
    return made.raw[:size]


def described(case: object) -> str:
    """Format a case for messages. Arrays are shown as type and shape only: printing numbers takes
    longer than checking them, and a message is built for passing cases, too."""
    if isinstance(case, np.ndarray):
        return f"{case.dtype}{list(case.shape)}"
    if is_dataclass(case):
        named = (f"{field.name}={described(getattr(case, field.name))}" for field in fields(case))
        return f"{type(case).__name__}({', '.join(named)})"
    return repr(case)
