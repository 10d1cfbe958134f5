"""ctypes bindings for the functions and structs of ek.h, and the memory they use."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from typing import Optional

from edgekit.device.runtime.agent.manifest import WEIGHTS, Manifest
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import Description, parse_description
from edgekit.device.runtime.agent.task import GENERATE, LISTEN, WRITE
from edgekit.device.runtime.errors import (
    IncompatibleError,
    InputError,
    TooLittleMemoryError,
    TransferError,
)
from edgekit.device.runtime.shared_library import open_library


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
    """Maps the first `size` bytes of the weights read-only. Python's own mmap does not expose the
    address of a read-only map. A release's variants share one file, and may read only a prefix of
    it."""

    def __init__(self, files: ReleaseFiles, size: int) -> None:
        self.address: Optional[int] = None
        self._size = size
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            with files.opened(WEIGHTS) as file:
                found = os.fstat(file).st_size
                if found < size:
                    raise TransferError(
                        f"{WEIGHTS}: expected {size} bytes, found {found}; deploy again"
                    )
                if size:
                    self.address = self._mmap_file(file)
        except OSError as error:
            raise _unreadable(WEIGHTS, error) from None

    def _mmap_file(self, fd: int) -> int:
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


def load_library(files: ReleaseFiles, path: str) -> ctypes.CDLL:
    """Loads a release's library, with the signatures of the functions in ek.h."""
    try:
        place = files.loader_path(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    lib = open_library(files.folder / path, place=place)
    model = ctypes.POINTER(ModelStruct)
    arrays = ctypes.POINTER(ctypes.c_void_p)
    lib.ek_describe.restype = ctypes.c_char_p
    lib.ek_reset.argtypes, lib.ek_reset.restype = (model,), None
    lib.ek_run.argtypes = (model, arrays, arrays)
    lib.ek_bench.argtypes = (model, arrays, arrays, ctypes.c_long, ctypes.POINTER(ctypes.c_uint64))
    return lib


def _unreadable(path: str, error: OSError) -> TransferError:
    return TransferError(f"{path}: expected a readable file, found {error.strerror}; deploy again")


def describe(lib: ctypes.CDLL, path: str) -> Description:
    """Returns the description stored in the library at `path`; IncompatibleError if it is
    invalid."""
    try:
        return parse_description(json.loads(lib.ek_describe()))
    except (ValueError, InputError) as error:
        raise IncompatibleError(f"{path}: {error}") from None


def shared_state(manifest: Manifest) -> Optional[mmap.mmap]:
    """Memory for the states of all variants of a language model, which take different numbers of
    tokens of one text, or of an encoder and a decoder, which may have more behind those; None for
    other models, whose variants have states of their own."""
    every = manifest.every_variant()
    sizes = {v.memory.state_bytes for v in every}
    is_language = manifest.task is not None and manifest.task.kind == GENERATE
    if {v.signature for v in every} == {LISTEN, WRITE}:
        return block_of(max(sizes))
    return block_of(sizes.pop()) if is_language and len(sizes) == 1 else None


def block_of(size: int) -> mmap.mmap:
    """Returns zeroed, page-aligned memory, freed with the object."""
    try:
        # MAP_PRIVATE: Python's default is shared memory, which is faulted in one page at a time.
        return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError):
        raise TooLittleMemoryError(
            f"expected {size} bytes of memory, found that the system refused; free some or use a "
            "smaller model"
        ) from None


def address_of(block: mmap.mmap) -> int:
    """Returns the block's address, which is fixed while a reference exists."""
    return ctypes.addressof(ctypes.c_char.from_buffer(block))
