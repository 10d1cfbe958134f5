"""Caches the bytecode of the runtime's modules between starts.

Python does not cache bytecode of modules in a .pyz, and compiling them dominates a start on a small
board. A process adds newly compiled modules to a file in `bytecode/` of the board's folder. The
file name identifies the .pyz and the Python version; a checksum covers name and content. The file
is read and verified as one unit, so that damaged code never runs, and used only if this user alone
could have written it. If it cannot be written, as on a full or read-only disk, modules are compiled
from the .pyz.
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

Modules = Dict[str, Tuple[bool, bytes]]  # by name: whether it is a package, and its code


def use_bytecode() -> None:
    """Imports this package's modules from cached bytecode, if it was itself started from a .pyz."""
    global _cache
    archive = own_archive()
    if _cache is None and archive.is_file():
        _cache = _Cache(archive)
        sys.meta_path.insert(0, _cache)


def own_archive() -> Path:
    """Returns the .pyz that this module comes from."""
    return Path(os.path.realpath(__file__)).parents[3]


def keep_bytecode() -> None:
    """Caches newly compiled modules; never fails."""
    if _cache is not None:
        with contextlib.suppress(OSError, MemoryError):
            _cache.write()


def archive_sum(path: Path) -> str:
    """Returns the cache file's name prefix: size and CRC-32 of the .pyz."""
    data = path.read_bytes()
    return sum_text(len(data), zlib.crc32(data))


def sum_text(size: int, crc32: int) -> str:
    """Formats the prefix from known sums."""
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
        """Implements the finder protocol for modules in the .pyz."""
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
        """Returns None, for Python's default module creation."""
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Executes the module's code."""
        exec(self._load_code(module.__name__), module.__dict__)

    def get_source(self, name: str) -> Optional[str]:
        """Returns the source, for tracebacks."""
        return self._parent_importer(name).get_source(name)

    def write(self) -> None:
        """Merges newly compiled modules into the cache file. If two processes write at the same
        time, the file may come out damaged, which the checksum detects."""
        folder = self._find_folder()
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
            temporary.unlink()  # it may be the cause of the full disk
            raise
        self._new = {}

    def _load_code(self, name: str) -> CodeType:
        if name in self._known:
            code: CodeType = marshal.loads(self._known.pop(name)[1])
            return code
        code = self._parent_importer(name).get_code(name)
        self._new[name] = (self._is_package(name), marshal.dumps(code))
        return code

    def _is_package(self, name: str) -> bool:
        return self._parent_importer(name).is_package(name)

    def _parent_importer(self, name: str) -> zipimport.zipimporter:
        parent = name.rpartition(".")[0].replace(".", "/")
        return zipimport.zipimporter(f"{self._archive}/{parent}")

    def _find_folder(self) -> Optional[Path]:
        """Returns the cache folder above the .pyz, if any."""
        for folder in list(self._archive.parents)[:_LEVELS]:
            with contextlib.suppress(OSError):
                if _is_own((folder / FOLDER).lstat(), stat.S_IFDIR):
                    return folder / FOLDER
        return None

    def _read(self) -> Modules:
        """Reads the cache; empty if it is damaged, or another user could have written it."""
        folder = self._find_folder()
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
        """Checksum over the file name and its content."""
        return zlib.crc32(data, zlib.crc32(self._name.encode())).to_bytes(_SUM_BYTES, "big")


def _is_own(about: os.stat_result, kind: int) -> bool:
    """Whether it is of that file type, and only this user could have written it."""
    others = stat.S_IWGRP | stat.S_IWOTH
    mine = about.st_uid == os.geteuid() and not about.st_mode & others
    return mine and stat.S_IFMT(about.st_mode) == kind


_cache: Optional[_Cache] = None
