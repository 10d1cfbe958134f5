"""Bytecode of the runtime's modules, kept from one start to the next.

Python keeps none of modules in a .pyz, and compiling them is most of a start on a small board. What
a process had to compile it adds to a file in `bytecode/` of the board's folder, whose name says of
which .pyz and which Python it is; a checksum is over both. Read and checked as a whole, so that
nothing damaged is run; made by this user alone, or not used. Where nothing can be kept, as on a
disk that is full or read-only, modules come from the .pyz as without it.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import stat
import sys
import zipimport
import zlib
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Dict, Optional, Sequence, Tuple

FOLDER = "bytecode"

_OURS = "edgekit.device."
_LEVELS = 5  # of named/<name>/releases/<id>/runtime.pyz, the deepest below the board's folder
_SUM_BYTES = 4
_MOST_BYTES = 1 << 24

Modules = Dict[str, Tuple[bool, bytes]]  # whether it is a package, and its code, by name


def use_bytecode() -> None:
    """Imports of this package's modules come from kept bytecode, if this one came from a .pyz."""
    global _cache
    archive = Path(os.path.realpath(__file__)).parents[3]
    if _cache is None and archive.is_file():
        _cache = _Cache(archive)
        sys.meta_path.insert(0, _cache)


def keep_bytecode() -> None:
    """Keeps what had to be compiled so far; never fails."""
    if _cache is not None:
        with contextlib.suppress(OSError, MemoryError):
            _cache.write()


def archive_sum(path: Path) -> str:
    """What names of kept files begin with: size and CRC-32 of the .pyz."""
    data = path.read_bytes()
    return sum_text(len(data), zlib.crc32(data))


def sum_text(size: int, crc32: int) -> str:
    """The same for a file whose sums are known."""
    return f"{size}-{crc32:08x}"


class _Cache:
    """Finds and loads modules of one .pyz."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._sum = archive_sum(archive)
        python = f"{sys.implementation.cache_tag}-{sys.hexversion:x}-{sys.flags.optimize}"
        self._name = f"{self._sum}.{python}"
        self._known = self._read()
        self._new: Modules = {}

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: object = None
    ) -> Optional[ModuleSpec]:
        """As Python asks finders; only for what lies in the .pyz."""
        del path, target
        if not name.startswith(_OURS):
            return None
        try:
            package = self._known[name][0] if name in self._known else self._is_package(name)
        except ImportError:
            return None
        place = f"{self._archive}/{name.replace('.', '/')}"
        loader: Any = self
        spec = ModuleSpec(name, loader, is_package=package)
        spec.origin = f"{place}/__init__.py" if package else f"{place}.py"
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(place)
        return spec

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        """None: as Python makes them."""
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Runs the code of `module` in it."""
        exec(self._code(module.__name__), module.__dict__)

    def get_source(self, name: str) -> Optional[str]:
        """The source, for tracebacks."""
        return self._importer(name).get_source(name)

    def write(self) -> None:
        """Adds what was compiled to what is kept by now. A file that another process writes at the
        same time may come out damaged, which the checksum tells."""
        folder = self._folder()
        if folder is None or not self._new or archive_sum(self._archive) != self._sum:
            return
        data = marshal.dumps({**self._read(), **self._new})
        temporary = folder / f".{self._name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._checksum(data) + data)
            temporary.replace(folder / self._name)
        except OSError:
            temporary.unlink()  # it may be what fills the disk
            raise
        self._new = {}

    def _code(self, name: str) -> CodeType:
        if name in self._known:
            code: CodeType = marshal.loads(self._known.pop(name)[1])
            return code
        code = self._importer(name).get_code(name)
        self._new[name] = (self._is_package(name), marshal.dumps(code))
        return code

    def _is_package(self, name: str) -> bool:
        return self._importer(name).is_package(name)

    def _importer(self, name: str) -> zipimport.zipimporter:
        parent = name.rpartition(".")[0].replace(".", "/")
        return zipimport.zipimporter(f"{self._archive}/{parent}")

    def _folder(self) -> Optional[Path]:
        """Where bytecode is kept: above the .pyz."""
        for folder in list(self._archive.parents)[:_LEVELS]:
            with contextlib.suppress(OSError):
                if _is_own((folder / FOLDER).lstat(), stat.S_IFDIR):
                    return folder / FOLDER
        return None

    def _read(self) -> Modules:
        """What is kept; nothing if it is damaged, or another user could have made it."""
        folder = self._folder()
        if folder is None:
            return {}
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(folder / self._name, flags)
            with os.fdopen(descriptor, "rb") as file:
                if not _is_own(os.fstat(descriptor), stat.S_IFREG):
                    return {}
                data = file.read(_MOST_BYTES)
        except OSError:
            return {}
        body = memoryview(data)[_SUM_BYTES:]
        if data[:_SUM_BYTES] != self._checksum(body):
            return {}
        found: Modules = marshal.loads(body)
        return found

    def _checksum(self, data: "bytes | memoryview") -> bytes:
        """Of the name and what is kept under it."""
        return zlib.crc32(data, zlib.crc32(self._name.encode())).to_bytes(_SUM_BYTES, "big")


def _is_own(about: os.stat_result, kind: int) -> bool:
    """Whether it is of that kind, and nobody but this user can have written it."""
    others = stat.S_IWGRP | stat.S_IWOTH
    mine = about.st_uid == os.geteuid() and not about.st_mode & others
    return mine and stat.S_IFMT(about.st_mode) == kind


_cache: Optional[_Cache] = None
