"""Where the GEMM library of this machine is: named, in the cache, or built now."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Optional, Tuple

from edgekit.device import features
from edgekit.device.errors import DeviceError, IncompatibleError
from edgekit.device.version import VERSION

LIBRARY_VARIABLE = "EDGEKIT_KERNELS"
TABLE_VARIABLE = "EDGEKIT_GEMM_TABLE"
SPMV_TABLE_VARIABLE = "EDGEKIT_SPMV_TABLE"
_BUILD_SECONDS = 600.0  # also the compiler's first run, which builds its own C library
_TOLD = "compiling the kernels library for this machine, once; this takes about half a minute"
_SOURCES = ("device/kernels", "host/toolchain", "kb")
_ROOT = Path(__file__).resolve().parent.parent


def find_library() -> Tuple[Path, Optional[Path]]:
    """The library, and its table if there is one.

    EDGEKIT_KERNELS names the library, EDGEKIT_GEMM_TABLE the table (else: the file beside it with
    .table). Without, the library of this machine is built once into the cache by the host's part
    of edgekit. IncompatibleError where there is neither.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    path = Path(named) if named else local_path()
    if not (path.is_file() if named else _is_whole(path)):
        if named:
            raise IncompatibleError(
                f"{LIBRARY_VARIABLE}={named}: expected a library, found no file; "
                "build it: python -m edgekit.host.toolchain.kernels PATH"
            )
        _build(path)
    table = os.environ.get(TABLE_VARIABLE)
    beside = path.with_name(f"{path.name}.table")
    return path, Path(table) if table else beside if beside.is_file() else None


def _is_whole(path: Path) -> bool:
    """A library that was cut, by a crash or a full disk, is built again."""
    from edgekit.device.library import check_elf

    try:
        check_elf(path)
    except DeviceError:
        return False
    return True


def find_spmv_table(library: Path) -> Optional[Path]:
    """What is known of sparse matrices: EDGEKIT_SPMV_TABLE, else the file beside the library."""
    named = os.environ.get(SPMV_TABLE_VARIABLE)
    beside = library.with_name(f"{library.name}.spmv")
    return Path(named) if named else beside if beside.is_file() else None


def local_path() -> Path:
    """Where the library of this machine is kept, for the sources as they are now."""
    return _cache_folder() / "kernels" / f"libedgekit-kernels-{_fingerprint()}.so"


def _cache_folder() -> Path:
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def _folder(below: str, variable: str, usual: str) -> Path:
    """As in edgekit.host.paths, which needs a package that boards lack."""
    home = os.environ.get("EDGEKIT_HOME")
    if home:
        return Path(home).absolute() / below
    named = os.environ.get(variable, "").strip()
    return Path(named or Path.home() / usual) / "edgekit"


def _fingerprint() -> str:
    """Changes with the CPU and, by sizes and times, with all that library and table are made of."""
    digest = hashlib.sha256(" ".join((VERSION, *sorted(features.features()))).encode())
    own = _folder("", "XDG_DATA_HOME", ".local/share")
    for folder in (*(_ROOT / source for source in _SOURCES), own / "gemm", own / "spmv"):
        for path in sorted(folder.rglob("*.*")):
            if path.suffix != ".pyc":
                found = path.stat()
                digest.update(f"{path.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _build(path: Path) -> None:
    if sys.stderr.isatty():
        print(f"edgekit: {_TOLD}", file=sys.stderr)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "edgekit.host.toolchain.kernels", str(path)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=_BUILD_SECONDS, check=False
        )
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        done, lines = None, [str(error)]
    if done is None or done.returncode or not path.is_file():
        found = lines[-1].removeprefix("edgekit: ") if lines else "no word why"
        raise IncompatibleError(
            f"expected to build the GEMM library, found: {found}; install the whole of edgekit, "
            f"or set {LIBRARY_VARIABLE} to a library built for this board"
        )
