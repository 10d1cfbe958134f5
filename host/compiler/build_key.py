"""Identifies a compile by everything that it depends on, without importing the compiler.

Only contents count. Times and sizes would not do: a file restored from a backup is older than what
was compiled in the meantime.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from edgekit.host.common.files import open_file, read_file
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.frontends import model_hash
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import (
    decoder_file,
    merged_file,
    next_token_file,
    read_sidecar,
    sidecar_files,
)
from edgekit.kb.targets.board import BoardProfile

_TABLES = ("cost", "gemm", "layouts", "orders", "spmv")  # folders of the user's own measurements
_KIT = ("device", "host", "kb")
_PACKAGES = (".dist-info", ".egg-info")  # folders named by package and version
_COMPILED = "__pycache__"
_CHUNK = 1 << 16


def build_key(model: Path, board: BoardProfile, options: CompileOptions) -> str:
    """Equal keys mean equal results: the model, its files and those next to it, the profile, all
    options with their samples, the user's tables, and edgekit with its tools. Raises InputError for
    a model that cannot be read."""
    parts = decoder_file(model), next_token_file(model), merged_file(model)
    files = (model, *parts, options.float_model, options.recognizer)
    hashes = (model_hash(file) for file in files if file is not None)
    models = (model, options.recognizer) if options.recognizer else (model,)
    given = (model.name, *hashes, repr(board), repr(options))
    sidecars = map(_sidecars_digest, models)
    tables = (_tables_digest(data_folder() / name) for name in _TABLES)
    return hash_parts(*given, *sidecars, _samples_digest(options.samples), *tables, kit_digest())


@functools.cache
def kit_digest() -> str:
    """A digest of edgekit's own files, and of the names and versions of all installed packages."""
    import edgekit

    packages = (Path(p).resolve() / package for p in edgekit.__path__ for package in _KIT)
    own = (_files_digest(_files_in(package)) for package in packages)
    return hash_parts(sys.version, *own, *_installed_packages())


def hash_parts(*parts: str) -> str:
    """One digest of several texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _sidecars_digest(model: Path) -> str:
    found = ((file.name, read_sidecar(file) or b"") for file in sidecar_files(model))
    return hash_parts(*(f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in found))


def _samples_digest(path: Path | None) -> str:
    if path is None or not path.exists():
        return ""
    from edgekit.host.compiler.inputs import input_files

    return _files_digest(map(str, input_files(path)))


def _tables_digest(folder: Path) -> str:
    """A digest of a user's tables. What cannot be read counts by its name: only those who need the
    table know how to fix it."""
    parts: list[str] = []
    for name in _files_in(folder):
        parts.append(name)
        with contextlib.suppress(OSError):
            parts.append(hashlib.sha256(read_file(Path(name))).hexdigest())
    return hash_parts(*parts)


def _files_in(path: Path) -> list[str]:
    found: list[str] = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != _COMPILED)
        found += (f"{folder}/{name}" for name in sorted(names))
    return found


def _files_digest(names: Iterable[str]) -> str:
    """A digest of the names and contents of files; OSError like `open_file`."""
    digest = hashlib.sha256()
    for name in names:
        content = hashlib.sha256()
        with open_file(name) as file:  # a thousand files: making Paths would take half the time
            while chunk := file.read(_CHUNK):
                content.update(chunk)
        digest.update(f"{name}\0".encode() + content.digest())
    return digest.hexdigest()


def _installed_packages() -> list[str]:
    found: set[str] = set()
    for folder in filter(os.path.isdir, sys.path):
        found.update(each.name for each in Path(folder).iterdir() if each.suffix in _PACKAGES)
    return sorted(found)
