"""Builds our C programs with ziglang on first use and keeps them in the cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.checked_files import is_intact, put_checked
from edgekit.host.common.files import locked
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.process import run_watched
from edgekit.host.compiler.toolchain.zig import BuildError, zig_compiler

_SOURCES = (".c", ".cpp")
_TIMEOUT = 1800  # seconds, for machines with many busy processes


@dataclass(frozen=True)
class Build:
    """The C and C++ files of `folder`, compiled with `flags` and linked with `link_flags` to a
    program or library called `name`."""

    folder: Path
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    name: str

    def files(self) -> list[Path]:
        """Its sources and headers."""
        return sorted(p for p in self.folder.iterdir() if p.suffix in (*_SOURCES, ".h"))


def built(build: Build) -> Path:
    """The program or library, built unless it is in the cache."""
    target = _target_path(build)
    if is_intact(target):
        return target
    cache = target.parent
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "locks" / build.name), tempfile.TemporaryDirectory(dir=cache) as work:
        if not is_intact(target):
            made = _make(build, Path(work), cache)
            made.chmod(0o755)
            put_checked(made, target)
    return target


def is_built(build: Build) -> bool:
    """Whether the result is already in the cache."""
    return is_intact(_target_path(build))


def _make(build: Build, work: Path, cache: Path) -> Path:
    """Compiles and links apart: the compiler has no headers of C for what links to no C library."""
    sources = [path for path in build.files() if path.suffix in _SOURCES]
    objects = [str(work / f"{path.stem}.o") for path in sources]
    driver = "c++" if any(path.suffix == ".cpp" for path in sources) else "cc"

    def compile_file(path: Path, made: str) -> None:
        _run_compiler([driver, *build.flags, "-c", str(path), "-o", made], cache, path.name)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as threads:
        list(threads.map(compile_file, sources, objects))
    made = work / build.name
    _run_compiler([driver, *build.link_flags, *objects, "-o", str(made)], cache, build.name)
    return made


def _target_path(build: Build) -> Path:
    """The path of the result, next to the toolchain's objects."""
    _, version = zig_compiler()
    flags = (build.flags, build.link_flags)
    digest = hashlib.sha256(repr((version, flags, build.name)).encode())
    for file in build.files():
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return cache_folder() / "objects" / f"{digest.hexdigest()}-{build.name}"


def _run_compiler(arguments: Sequence[str], cache: Path, name: str) -> None:
    environment = os.environ | {
        "ZIG_GLOBAL_CACHE_DIR": str(cache / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(cache / "zig-local"),
    }
    try:
        done = run_watched([zig_compiler()[0], *arguments], environment, _TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(
            f"compiling {name}: expected the ziglang compiler to run, found {error}; "
            "try: pip install --force-reinstall ziglang"
        ) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        found = lines[0] if lines else done.stderr.strip()[-300:]
        raise BuildError(f"compiling {name}: expected success, found: {found}")
