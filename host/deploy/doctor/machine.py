"""Checks the developer's machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgekit.host.common.checked_files import WORK, in_use
from edgekit.host.common.paths import cache_folder, data_folder
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit
from edgekit.host.deploy.doctor.types import Finding, Verdict
from edgekit.host.errors import EdgekitError
from edgekit.kb.targets.board import BoardProfile

_SPACE_BYTES = 512 << 20  # a first compile fills the compiler's cache with about 200 MB
_ANSWER = 42
_SOURCE = f"int doctor(void);\nint doctor(void) {{ return {_ANSWER}; }}\n"
_CALL = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).doctor())"
_QEMU = ("qemu-aarch64", "qemu-arm", "qemu-riscv64")
_VIRTUAL = (*(f"qemu-system-{a}" for a in ("aarch64", "arm", "riscv64")), "mke2fs", "debugfs")
_VIRTUAL_PACKAGES = ("qemu-system-arm", "qemu-system-misc", "e2fsprogs")


def examine_machine(profile: BoardProfile) -> Iterator[Finding]:
    """Yields findings about this machine, as they are made; `profile` is the compile target."""
    yield Finding("python", Verdict.OK, platform.python_version())
    numpy = _check_numpy()
    yield numpy
    if numpy.verdict is Verdict.FAIL:
        return  # nothing else would even import
    cache = _check_folder("cache folder", cache_folder())
    yield cache
    yield _check_folder("data folder", data_folder())
    if cache.verdict is not Verdict.FAIL:
        yield _check_compiler(profile, cache_folder() / "objects")
    yield _check_programs(
        "virtual boards", _VIRTUAL, "'edgekit board up' needs them", *_VIRTUAL_PACKAGES
    )
    yield _check_programs("signing", ("ssh-keygen",), "bundles cannot be signed", "openssh-client")
    yield _check_programs("cross tests", _QEMU, "only tests need them", "qemu-user")
    yield _check_programs("ssh tests", ("sshd",), "only tests need it", "openssh-server")
    yield _check_peers()


def _check_numpy() -> Finding:
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


def _check_folder(check: str, folder: Path) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        fix = "make it writable, or set XDG_CACHE_HOME and EDGEKIT_HOME to folders that are"
        return Finding(check, Verdict.FAIL, f"{folder}: {error.strerror}", fix)
    found = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < _SPACE_BYTES:
        return Finding(check, Verdict.WARN, found, "free at least 0.5 GiB on that disk")
    return Finding(check, Verdict.OK, found)


def _check_compiler(profile: BoardProfile, cache: Path) -> Finding:
    """Builds a one-line library from scratch, and calls it if it targets this machine."""
    found = f"ziglang {_version_of('ziglang')}"
    try:
        with in_use(cache), tempfile.TemporaryDirectory(prefix=WORK, dir=cache) as folder:
            for name in ("zig", "zig-local"):  # reuse the C library that was built before
                (cache / name).mkdir(exist_ok=True)
                (Path(folder) / name).symlink_to(cache / name)
            library = Path(folder) / "doctor.so"
            library.write_bytes(
                Toolchain(profile, Path(folder)).build([TranslationUnit("doctor", _SOURCE)])
            )
            if profile.name != "local":
                return Finding("compiler", Verdict.OK, f"{found} compiles C for {profile.name}")
            caller = [sys.executable, "-I", "-S", "-c", _CALL, str(library)]
            code = subprocess.run(caller, check=False, timeout=60).returncode
    except (OSError, ImportError, EdgekitError, subprocess.SubprocessError) as error:
        fix = "pip install --force-reinstall ziglang==0.17.0"
        return Finding("compiler", Verdict.FAIL, " ".join(str(error).split()), fix)
    if code != _ANSWER:
        seen = f"{found}: what it compiled returned {code} instead of {_ANSWER}"
        return Finding("compiler", Verdict.FAIL, seen, "allow running programs from the cache")
    return Finding("compiler", Verdict.OK, f"{found} compiles and runs C")


def _check_programs(check: str, names: Sequence[str], why: str, *packages: str) -> Finding:
    """Checks optional programs; the system folders are searched even if they are not in PATH."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))

    def there(name: str) -> bool:
        return any(shutil.which(n, path=path) for n in (name, f"{name}-static"))

    missing = [name for name in names if not there(name)]
    if not missing:
        return Finding(check, Verdict.OK, ", ".join(names))
    found = f"no {', '.join(missing)}; {why}"
    return Finding(check, Verdict.INFO, found, f"apt-get install {' '.join(packages)}")


def _check_peers() -> Finding:
    for package, module in (
        ("ai-edge-litert", "ai_edge_litert"),
        ("tflite-runtime", "tflite_runtime"),
    ):
        if importlib.util.find_spec(module):
            return Finding("peers", Verdict.OK, f"{package} {_version_of(package)}")
    found = "no LiteRT; 'bench model --peers' fetches it, some tests need it"
    return Finding("peers", Verdict.INFO, found, "scripts/setup --peers")


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(unknown version)"
