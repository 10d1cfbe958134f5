"""Checks of the developer's machine and of a board; each finding says how to mend it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgekit.host.build.toolchain import Toolchain, Unit
from edgekit.host.errors import EdgekitError
from edgekit.host.paths import cache_folder, data_folder
from edgekit.kb.board import BoardProfile, cpu_flags, load_board

_SPACE_BYTES = 512 << 20  # a first compile fills the compiler's cache with about 200 MB
_ANSWER = 42
_SOURCE = f"int doctor(void);\nint doctor(void) {{ return {_ANSWER}; }}\n"
_CALL = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).doctor())"
_QEMU = {"aarch64": "qemu-aarch64", "armv7": "qemu-arm", "riscv64": "qemu-riscv64"}


class Verdict(StrEnum):
    """INFO is something optional that is not there: nothing to mend unless wanted."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One check: `found` is what was seen, `mend` what to do about it (empty when ok)."""

    check: str
    verdict: Verdict
    found: str
    mend: str = ""


def examine(board: str) -> Iterator[Finding]:
    """Findings about this machine, then about `board`, as they are made.

    Raises UnknownBoardError.
    """
    profile = load_board(board)
    yield Finding("python", Verdict.OK, platform.python_version())
    numpy = _numpy()
    yield numpy
    if numpy.verdict is Verdict.FAIL:
        return  # nothing else would even import
    cache = _folder("cache folder", cache_folder())
    yield cache
    yield _folder("data folder", data_folder())
    if cache.verdict is not Verdict.FAIL:
        yield _compiler(profile, cache_folder() / "objects")
    yield _board(profile)
    yield _emulators()
    yield _peers()


def _numpy() -> Finding:
    try:
        import numpy
    except ImportError as error:
        return Finding("numpy", Verdict.FAIL, str(error), "pip install 'numpy>=1.26'")
    core = os.environ.get("OPENBLAS_CORETYPE")
    if core:
        return Finding(
            "numpy",
            Verdict.WARN,
            f"{numpy.__version__}; OPENBLAS_CORETYPE={core} ties its OpenBLAS to that core",
            "unset OPENBLAS_CORETYPE before comparing speed",
        )
    return Finding("numpy", Verdict.OK, numpy.__version__)


def _folder(check: str, folder: Path) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        mend = "make it writable, or set XDG_CACHE_HOME and EDGEKIT_HOME to folders that are"
        return Finding(check, Verdict.FAIL, f"{folder}: {error.strerror}", mend)
    found = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < _SPACE_BYTES:
        return Finding(check, Verdict.WARN, found, "free at least 0.5 GiB on that disk")
    return Finding(check, Verdict.OK, found)


def _compiler(profile: BoardProfile, cache: Path) -> Finding:
    """Builds a one-line library afresh, and calls it if it is for this machine."""
    found = f"ziglang {_version_of('ziglang')}"
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-", dir=cache) as folder:
            for name in ("zig", "zig-local"):  # the C library it has built before
                (cache / name).mkdir(exist_ok=True)
                (Path(folder) / name).symlink_to(cache / name)
            library = Path(folder) / "doctor.so"
            library.write_bytes(Toolchain(profile, Path(folder)).build([Unit("doctor", _SOURCE)]))
            if profile.name != "local":
                return Finding("compiler", Verdict.OK, f"{found} compiles C for {profile.name}")
            caller = [sys.executable, "-I", "-S", "-c", _CALL, str(library)]
            code = subprocess.run(caller, check=False, timeout=60).returncode
    except (OSError, ImportError, EdgekitError, subprocess.SubprocessError) as error:
        mend = "pip install --force-reinstall ziglang==0.17.0"
        return Finding("compiler", Verdict.FAIL, " ".join(str(error).split()), mend)
    if code != _ANSWER:
        seen = f"{found}: what it compiled returned {code} instead of {_ANSWER}"
        return Finding("compiler", Verdict.FAIL, seen, "allow running programs from the cache")
    return Finding("compiler", Verdict.OK, f"{found} compiles and runs C")


def _board(profile: BoardProfile) -> Finding:
    check = f"board {profile.name}"
    if profile.name != "local":
        found = f"{profile.description}; a profile to compile for, no address known"
        return Finding(check, Verdict.INFO, found, "deploying over SSH is not there yet")
    missing = sorted(set(profile.features) - cpu_flags())
    if missing:
        found = f"this CPU lacks {', '.join(missing)}"
        return Finding(check, Verdict.FAIL, found, "choose another board: edgekit boards")
    return Finding(check, Verdict.OK, f"{profile.description}, runs here")


def _emulators() -> Finding:
    names = [n for n in _QEMU.values() if shutil.which(n) or shutil.which(f"{n}-static")]
    if len(names) == len(_QEMU):
        return Finding("emulators", Verdict.OK, ", ".join(names))
    found = f"{', '.join(names) or 'none'} of {', '.join(_QEMU.values())}; only tests need them"
    return Finding("emulators", Verdict.INFO, found, "apt-get install qemu-user")


def _peers() -> Finding:
    for package, module in (
        ("ai-edge-litert", "ai_edge_litert"),
        ("tflite-runtime", "tflite_runtime"),
    ):
        if importlib.util.find_spec(module):
            return Finding("peers", Verdict.OK, f"{package} {_version_of(package)}")
    found = "no LiteRT; only 'bench model --peers' and some tests need it"
    return Finding("peers", Verdict.INFO, found, "pip install 'edgekit[peers]'")


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(unknown version)"
