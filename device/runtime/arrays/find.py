"""Finds this machine's kernels library: named explicitly, or built by a package of edgekit."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path
from typing import Iterable, Optional, Tuple

from edgekit.device.runtime.errors import IncompatibleError

LIBRARY_VARIABLE = "EDGEKIT_KERNELS"
TABLE_VARIABLE = "EDGEKIT_GEMM_TABLE"
SPMV_TABLE_VARIABLE = "EDGEKIT_SPMV_TABLE"
_PROVIDER = "local_kernels"  # a module with local_library(), in any package of this namespace


def find_library(packages: Optional[Iterable[str]] = None) -> Tuple[Path, Optional[Path]]:
    """Returns the library's path, and its table's path if there is one.

    EDGEKIT_KERNELS names the library, EDGEKIT_GEMM_TABLE the table (default: the library's path
    plus .table). Otherwise a sibling package of edgekit with a module `local_kernels` provides this
    machine's library; a board has no such package. `packages` are the folders with edgekit's
    packages, by default those that are installed. IncompatibleError if there is neither.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named and not Path(named).is_file():
        raise IncompatibleError(
            f"{LIBRARY_VARIABLE}={named}: expected a library, found no file; "
            "name one that was built for this machine"
        )
    path = Path(named) if named else _find_in_packages(packages)
    table = os.environ.get(TABLE_VARIABLE)
    beside = path.with_name(f"{path.name}.table")
    return path, Path(table) if table else beside if beside.is_file() else None


def find_spmv_table(library: Path) -> Optional[Path]:
    """Returns the sparse matrix table: EDGEKIT_SPMV_TABLE, else the file next to the library."""
    named = os.environ.get(SPMV_TABLE_VARIABLE)
    beside = library.with_name(f"{library.name}.spmv")
    return Path(named) if named else beside if beside.is_file() else None


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
