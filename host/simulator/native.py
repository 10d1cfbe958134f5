"""Builds our C programs with ziglang on first use and keeps them in the cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgekit.host.common.checked_files import is_whole, put_checked
from edgekit.host.common.files import locked
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.process import run_watched
from edgekit.host.compiler.toolchain.zig import BuildError, zig_compiler

_TIMEOUT = 1800  # seconds; the first link for a target builds its C library of 2000 files


def built(folder: Path, flags: Sequence[str], name: str) -> Path:
    """Compiles the C files of `folder` with `flags` to a program or library called `name`."""
    target = _target_path(folder, flags, name)
    if is_whole(target):
        return target
    cache = target.parent
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "locks" / name), tempfile.TemporaryDirectory(dir=cache) as work:
        if not is_whole(target):
            made = Path(work) / name
            sources = [str(p) for p in _source_files(folder) if p.suffix == ".c"]
            path, _ = zig_compiler()
            _run_compiler([path, "cc", *flags, *sources, "-o", str(made)], cache, name)
            made.chmod(0o755)
            put_checked(made, target)
    return target


def is_built(folder: Path, flags: Sequence[str], name: str) -> bool:
    """Whether the result is already in the cache."""
    return is_whole(_target_path(folder, flags, name))


def _source_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in (".c", ".h"))


def _target_path(folder: Path, flags: Sequence[str], name: str) -> Path:
    """The path of the result, next to the toolchain's cache, which has the C libraries of
    targets."""
    _, version = zig_compiler()
    digest = hashlib.sha256(repr((version, tuple(flags), name)).encode())
    for file in _source_files(folder):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return cache_folder() / "objects" / f"{digest.hexdigest()}-{name}"


def _run_compiler(command: Sequence[str], cache: Path, name: str) -> None:
    environment = os.environ | {
        "ZIG_GLOBAL_CACHE_DIR": str(cache / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(cache / "zig-local"),
    }
    try:
        done = run_watched(command, environment, _TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(
            f"compiling {name}: expected the ziglang compiler to run, found {error}; "
            "try: pip install --force-reinstall ziglang"
        ) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        found = lines[0] if lines else done.stderr.strip()[-300:]
        raise BuildError(f"compiling {name}: expected success, found: {found}")
