"""Finds the kernels library of this machine: named, or made by a part of edgekit that can."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path
from typing import Optional, Tuple

from edgekit.device.runtime.errors import IncompatibleError

LIBRARY_VARIABLE = "EDGEKIT_KERNELS"
TABLE_VARIABLE = "EDGEKIT_GEMM_TABLE"
SPMV_TABLE_VARIABLE = "EDGEKIT_SPMV_TABLE"
_PROVIDER = "local_kernels"  # a module with local_library(), in any package of this namespace


def find_library() -> Tuple[Path, Optional[Path]]:
    """The library, and its table if there is one.

    EDGEKIT_KERNELS names the library, EDGEKIT_GEMM_TABLE the table (else: the file beside it with
    .table). Without, a package of edgekit beside this one that has a module `local_kernels` says
    where the library of this machine is; a board has none. IncompatibleError where there is
    neither.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    if named and not Path(named).is_file():
        raise IncompatibleError(
            f"{LIBRARY_VARIABLE}={named}: expected a library, found no file; "
            "name one that was built for this machine"
        )
    path = Path(named) if named else _provided()
    table = os.environ.get(TABLE_VARIABLE)
    beside = path.with_name(f"{path.name}.table")
    return path, Path(table) if table else beside if beside.is_file() else None


def find_spmv_table(library: Path) -> Optional[Path]:
    """What is known of sparse matrices: EDGEKIT_SPMV_TABLE, else the file beside the library."""
    named = os.environ.get(SPMV_TABLE_VARIABLE)
    beside = library.with_name(f"{library.name}.spmv")
    return Path(named) if named else beside if beside.is_file() else None


def _provided() -> Path:
    namespace = sys.modules["edgekit"].__path__
    for part in pkgutil.iter_modules(namespace, "edgekit."):
        name = f"{part.name}.{_PROVIDER}"
        if part.ispkg and importlib.util.find_spec(name):
            found: Path = importlib.import_module(name).local_library()
            return found
    raise IncompatibleError(
        "expected a kernels library for this machine, found none; install the whole of edgekit, "
        f"or set {LIBRARY_VARIABLE} to a library built for this board"
    )
