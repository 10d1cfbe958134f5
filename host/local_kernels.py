"""The kernel library for this machine, built once into the cache.

`edgekit.device` finds this module by name where both packages are installed
(runtime/arrays/find.py), so that `from edgekit.device import gemm` works here without setup.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from edgekit.device.runtime import features
from edgekit.device.runtime.arrays.find import LIBRARY_VARIABLE
from edgekit.device.runtime.errors import DeviceError, IncompatibleError
from edgekit.device.runtime.shared_library import check_elf
from edgekit.device.version import VERSION
from edgekit.host.common.paths import cache_folder, data_folder

_BUILD_SECONDS = 600.0  # includes the compiler's first run, which builds its own C library
_COMPILING = "compiling the kernels library for this machine, once; this takes about half a minute"
_SOURCES = (
    "device/kernels",
    "host/compiler/costs",
    "host/compiler/tables",
    "host/compiler/toolchain",
    "kb",
)
_ROOT = Path(__file__).resolve().parent.parent

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def local_library(run: Run = subprocess.run, messages: TextIO | None = None) -> Path:
    """The path of the library for this machine, which is built if necessary. IncompatibleError if
    that fails.

    `run` runs the compiler, as subprocess.run; `messages` is where someone who waits sees why,
    by default standard error.
    """
    path = local_path()
    if not _is_intact(path):
        _build_library(path, run, sys.stderr if messages is None else messages)
    return path


def local_path() -> Path:
    """The path of this machine's library in the cache, for the current sources."""
    return cache_folder() / "kernels" / f"libedgekit-kernels-{_kernels_fingerprint()}.so"


def _is_intact(path: Path) -> bool:
    """Whether the library is intact; one truncated by a crash or a full disk is rebuilt."""
    try:
        check_elf(path)
    except DeviceError:
        return False
    return True


def _kernels_fingerprint() -> str:
    """Changes with the CPU and, by file sizes and times, with the sources of library and tables."""
    digest = hashlib.sha256(" ".join((VERSION, *sorted(features.features()))).encode())
    own = data_folder()
    for folder in (*(_ROOT / source for source in _SOURCES), own / "gemm", own / "spmv"):
        for path in sorted(folder.rglob("*.*")):
            if path.suffix != ".pyc":
                found = path.stat()
                digest.update(f"{path.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _build_library(path: Path, run: Run, messages: TextIO) -> None:
    if messages.isatty():
        print(f"edgekit: {_COMPILING}", file=messages)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "edgekit.host.compiler.toolchain.kernels", str(path)]
    try:
        done = run(
            command, env=environment, capture_output=True, timeout=_BUILD_SECONDS, check=False
        )
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        done, lines = None, [str(error)]
    if done is None or done.returncode or not path.is_file():
        found = lines[-1].removeprefix("edgekit: ") if lines else "no word why"
        raise IncompatibleError(
            f"expected to build the GEMM library, found: {found}; install all of edgekit, "
            f"or set {LIBRARY_VARIABLE} to a library built for this board"
        )
