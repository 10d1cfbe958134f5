"""Opens libraries compiled by edgekit; rejects damaged ones and those for another CPU."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Optional

from edgekit.device.runtime import features
from edgekit.device.runtime.errors import IncompatibleError, TransferError

ABI = 1
_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def open_library(path: Path, what: str = "a compiled model", place: str = "") -> ctypes.CDLL:
    """Opens the library at `path` after checking its machine, its ABI and the CPU's features.
    `place` is the loader's path of it, if it is open already; see ReleaseFiles."""
    check_elf(path, place)
    try:
        lib = ctypes.CDLL(place or str(path.resolve()))
        found = int(lib.ek_abi())
    except (OSError, AttributeError) as error:
        raise IncompatibleError(
            f"{path.name}: expected {what}, found {error}; compile it again"
        ) from None
    if found != ABI:
        raise IncompatibleError(
            f"{path.name}: expected ABI {ABI}, found {found}; compile it again with this version "
            "of edgekit"
        )
    lib.ek_missing_feature.restype = ctypes.c_char_p
    missing: Optional[bytes] = lib.ek_missing_feature()
    if missing is not None:
        raise IncompatibleError(
            f"{path.name}: expected a CPU with {missing.decode()}, found one "
            "without; compile for a profile that does not need it"
        )
    return lib


def check_core(kernels: ctypes.CDLL, table: Path, core: str) -> None:
    """IncompatibleError if a table for the kernels library is of another core."""
    kernels.ek_kernels_platform.restype = ctypes.c_char_p
    expected = kernels.ek_kernels_platform().decode()
    if core != expected:
        raise IncompatibleError(
            f"{table.name}: expected a table of {expected}, found one of {core}; "
            "build it for the core of the library"
        )


def start_pool(lib: ctypes.CDLL, threads: int) -> Optional[int]:
    """Creates a thread pool in the library, including the caller; None for one thread."""
    if threads == 1:
        return None
    lib.ek_pool_create.argtypes, lib.ek_pool_create.restype = (ctypes.c_int,), ctypes.c_void_p
    lib.ek_pool_destroy.argtypes, lib.ek_pool_destroy.restype = (ctypes.c_void_p,), None
    pool: Optional[int] = lib.ek_pool_create(threads)
    if not pool:
        raise IncompatibleError(
            f"expected to start {threads} threads, found that the system refused; use fewer with "
            "--threads"
        )
    return pool


def check_elf(path: Path, place: str = "") -> None:
    """Checks the machine in the ELF header: dlopen's own message names neither side."""
    try:
        with Path(place or path).open("rb") as file:
            header = file.read(20)
    except OSError as error:
        raise TransferError(
            f"{path.name}: expected a readable file, found {error.strerror}; deploy again"
        ) from None
    if len(header) < 20 or header[:4] != b"\x7fELF":
        raise TransferError(
            f"{path.name}: expected a shared library, found {header[:4]!r}; deploy again"
        )
    number = struct.unpack_from("<H", header, 18)[0]
    found = _MACHINES.get(number, f"ELF machine {number}")
    if found != features.machine():
        raise IncompatibleError(
            f"{path.name}: expected a library for {features.machine()}, "
            f"found one for {found}; compile for this board's profile"
        )
    _check_segments(path, place)


def _check_segments(path: Path, place: str) -> None:
    """Checks for truncation: the loader maps segments beyond the end, and touching those is
    fatal."""
    with Path(place or path).open("rb") as file:
        size, header = os.fstat(file.fileno()).st_size, file.read(64)
        wide = header[4:5] == b"\x02"
        layout, row = ("<Q", "<IIQQQQQQ") if wide else ("<I", "<IIIIIIII")
        try:
            (start,) = struct.unpack_from(layout, header, 32 if wide else 28)
            width, count = struct.unpack_from("<HH", header, 54 if wide else 42)
            file.seek(start)
            rows = file.read(width * count)
            found = [struct.unpack_from(row, rows, i * width) for i in range(count)]
        except (struct.error, ValueError, OSError):
            found = []
    ends = [r[2] + r[5] if wide else r[1] + r[4] for r in found]
    if not ends or max(ends) > size:
        needed = max(ends, default=64)
        raise TransferError(
            f"{path.name}: expected at least {needed} bytes, found {size}; deploy again"
        )
