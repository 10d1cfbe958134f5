"""Finds this machine's kernels library and its tables: named explicitly, of a release of kernels,
or built by a package of edgekit."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path
from typing import Callable, Iterable, NamedTuple, Optional, Tuple

from edgekit.device.runtime.errors import IncompatibleError

LIBRARY_VARIABLE = "EDGEKIT_KERNELS"
TABLE_VARIABLE = "EDGEKIT_GEMM_TABLE"
SPMV_TABLE_VARIABLE = "EDGEKIT_SPMV_TABLE"
_PROVIDER = "local_kernels"  # a module with local_library(), in any package of this namespace


class KernelFiles(NamedTuple):
    """Paths of a kernels library, of its table of products, of that of sparse matrices, and of the
    parameters of the board's NNA."""

    library: Path
    table: Optional[Path]
    spmv: Optional[Path]
    nna: Optional[Path] = None


def use_release(files: Callable[[], KernelFiles]) -> None:
    """Makes this process take its kernels from a release, which `files` finds when it is called."""
    global _release
    _release = files


def find_library(packages: Optional[Iterable[str]] = None) -> Tuple[Path, Optional[Path]]:
    """Returns the library's path, and its table's path if there is one.

    EDGEKIT_KERNELS names the library, EDGEKIT_GEMM_TABLE the table (default: the library's path
    plus .table). Otherwise a program on a board has the files of its release. Otherwise a sibling
    package of edgekit with a module `local_kernels` provides this machine's library; a board has no
    such package. `packages` are the folders with edgekit's packages, by default those that are
    installed. IncompatibleError if there is neither.
    """
    found = _find_files(packages)
    return found.library, found.table


def find_spmv_table(library: Path) -> Optional[Path]:
    """Returns the table of sparse matrices for a library: EDGEKIT_SPMV_TABLE, else the one that
    belongs to it."""
    if named := _named_file(SPMV_TABLE_VARIABLE, "a table of sparse matrices"):
        return named
    if _release and (found := _release()).library == library:
        return found.spmv
    return _sibling(library, ".spmv")


def find_nna_chip() -> Optional[Path]:
    """Returns the parameters of this board's NNA; None outside of a release of kernels."""
    return _release().nna if _release else None


def _find_files(packages: Optional[Iterable[str]]) -> KernelFiles:
    named = _named_file(LIBRARY_VARIABLE, "a library")
    if _release and not named:
        return _release()
    path = named or _find_in_packages(packages)
    table = _named_file(TABLE_VARIABLE, "a table of products") or _sibling(path, ".table")
    return KernelFiles(path, table, _sibling(path, ".spmv"))


def _named_file(variable: str, what: str) -> Optional[Path]:
    """The file that an environment variable names; IncompatibleError if it does not exist."""
    named = os.environ.get(variable)
    if named and not Path(named).is_file():
        raise IncompatibleError(
            f"{variable}={named}: expected {what}, found no file; "
            "name one that was built for this machine"
        )
    return Path(named) if named else None


def _sibling(library: Path, suffix: str) -> Optional[Path]:
    path = library.with_name(f"{library.name}{suffix}")
    return path if path.is_file() else None


def _find_in_packages(packages: Optional[Iterable[str]]) -> Path:
    folders = sys.modules["edgekit"].__path__ if packages is None else packages
    for part in pkgutil.iter_modules(folders, "edgekit."):
        name = f"{part.name}.{_PROVIDER}"
        if part.ispkg and importlib.util.find_spec(name):
            found: Path = importlib.import_module(name).local_library()
            return found
    raise IncompatibleError(
        "expected a kernels library for this machine, found none; install all of edgekit, or set "
        f"{LIBRARY_VARIABLE} to a library built for this board"
    )


_release: Optional[Callable[[], KernelFiles]] = None
