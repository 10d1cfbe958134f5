"""The functions and structures of ek.h for ctypes, and the memory that they work on."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from pathlib import Path
from typing import Optional

from edgekit.device.runtime.agent.manifest import Description, parse_description
from edgekit.device.runtime.errors import (
    IncompatibleError,
    InputError,
    TooLittleMemoryError,
    TransferError,
)


class ModelStruct(ctypes.Structure):
    """ek_model of ek.h."""

    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("state", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("stamps", ctypes.POINTER(ctypes.c_uint64)),
    )


class WeightsMap:
    """The first `size` bytes of a file mapped read-only, for their address: Python's own mmap gives
    none for such a map. Variants of a release read one file, some of them less of it."""

    def __init__(self, path: Path, size: int) -> None:
        self.address: Optional[int] = None
        self._size = size
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno()).st_size
                if found < size:
                    raise TransferError(
                        f"{path.name}: expected {size} bytes, found {found}; deploy again"
                    )
                if size:
                    self.address = self._map(file.fileno())
        except OSError as error:
            raise TransferError(
                f"{path.name}: expected a readable file, found {error.strerror}; deploy again"
            ) from None

    def _map(self, fd: int) -> int:
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        address = self._libc.mmap(None, self._size, mmap.PROT_READ, mmap.MAP_PRIVATE, fd, 0)
        if address is None or address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(address)

    def close(self) -> None:
        if self.address:
            self._libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
            self._libc.munmap(self.address, self._size)
            self.address = None


def bind(lib: ctypes.CDLL) -> None:
    """Tells ctypes the types of the functions of ek.h."""
    model = ctypes.POINTER(ModelStruct)
    arrays = ctypes.POINTER(ctypes.c_void_p)
    lib.ek_describe.restype = ctypes.c_char_p
    lib.ek_reset.argtypes, lib.ek_reset.restype = (model,), None
    lib.ek_run.argtypes = (model, arrays, arrays)
    lib.ek_bench.argtypes = (model, arrays, arrays, ctypes.c_long, ctypes.POINTER(ctypes.c_uint64))


def describe(lib: ctypes.CDLL, path: Path) -> Description:
    """What the library at `path` says of itself; IncompatibleError if that makes no sense."""
    try:
        return parse_description(json.loads(lib.ek_describe()))
    except (ValueError, InputError) as error:
        raise IncompatibleError(f"{path.name}: {error}") from None


def block_of(size: int) -> mmap.mmap:
    """Zeroed memory, aligned to a page, given back when the object goes."""
    try:
        # Private: by default Python asks for memory to share, which comes a page at a time.
        return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError):
        raise TooLittleMemoryError(
            f"expected {size} bytes of memory, found that the system refuses; "
            "free some or use a smaller model"
        ) from None


def address_of(block: mmap.mmap) -> int:
    """Where the block begins; it stays there for as long as somebody has it."""
    return ctypes.addressof(ctypes.c_char.from_buffer(block))
