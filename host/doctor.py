"""Checks of the developer's machine and of a board; each finding says how to mend it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from platformdirs import user_cache_path

from edgekit.kb.board import BoardProfile, cpu_flags, load_board

_SPACE_BYTES = 512 << 20  # a first compile fills the compiler's cache with about 200 MB
_COMPILE_SECONDS = 120
_PROGRAM = "int main(void) { return 42; }\n"
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
    from edgekit.host.api import data_folder

    yield _folder("cache folder", user_cache_path("edgekit"))
    yield _folder("data folder", data_folder())
    yield _compiler()
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


def _compiler() -> Finding:
    try:
        import ziglang

        found = f"ziglang {_version_of('ziglang')}"
        with tempfile.TemporaryDirectory(prefix="edgekit-doctor-") as folder:
            program = Path(folder) / "program"
            source = program.with_suffix(".c")
            source.write_text(_PROGRAM)
            zig = Path(ziglang.__file__).parent / "zig"
            command = [str(zig), "cc", "-o", str(program), str(source)]
            subprocess.run(command, check=True, capture_output=True, timeout=_COMPILE_SECONDS)
            code = subprocess.run([str(program)], check=False, timeout=10).returncode
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        mend = "pip install --force-reinstall ziglang==0.17.0"
        return Finding("compiler", Verdict.FAIL, f"cannot compile C: {lines[0]}", mend)
    except (ImportError, OSError, subprocess.SubprocessError) as error:
        found = " ".join(str(error).split())
        return Finding("compiler", Verdict.FAIL, found, "pip install ziglang==0.17.0")
    if code != 42:
        found = f"{found}: a compiled program ended with {code} instead of 42"
        return Finding("compiler", Verdict.FAIL, found, "allow running programs from TMPDIR")
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
