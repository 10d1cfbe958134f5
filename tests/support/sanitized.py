"""Kernels built with AddressSanitizer and UndefinedBehaviorSanitizer, and run by a C driver.

Inputs, outputs and weights are separate heap blocks, so any out-of-bounds access ends the run.
Needs clang with its runtime (Debian: clang-19 libclang-rt-19-dev).

Objects are cached next to the toolchain's and keyed the same way: by a hash of all their inputs.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import structs

from edgekit.host.common.files import atomic_write, locked
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.zig import (
    TranslationUnit,
    headers_hash,
    kernels_folder,
    system_headers,
)
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.isa import Isa
from tests.support.kernel_runs import amx_boards, x86_boards

_DRIVER = Path(__file__).parents[1] / "cross" / "driver.c"
_ARCH = {
    "scalar": [],
    "sse2": [],
    "avx2": ["-march=x86-64-v3"],
    "avx512vnni": ["-march=x86-64-v4", "-mavx512vnni"],
    "avx512amx": ["-march=x86-64-v4", "-mavx512vnni", "-mamx-tile", "-mamx-int8"],
}
BOUNDS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
# Unoptimized: kernels unroll their loops, and -O1 took 4 to 19 times as long to compile the checks
# of each access. Line tables suffice for reports; variable info took a fifth of the compile time.
_FLAGS = ["-std=gnu11", "-O0", "-gline-tables-only"]
_PRECOMPILE = ["-fPIC", "-Xclang", "-fno-pch-timestamp", "-x", "c-header"]
RACES = ["-fsanitize=thread"]
BOARDS = {board.simd: board for board in (*x86_boards(), *amx_boards())}


def usable(simd: str) -> str:
    """`simd`, or the x86 baseline if this machine lacks it."""
    return simd if simd in BOARDS else "sse2"


def with_isa(board: BoardProfile, **changes: Any) -> BoardProfile:
    """`board` with other properties of its instruction set, such as heights of register tiles."""
    changed = structs.replace(board.isa, **changes)

    class Changed(BoardProfile):
        @property
        def isa(self) -> Isa:
            return changed

    return Changed(**vars(board))


def build_driver(path: Path, checks: Sequence[str] = BOUNDS) -> Path:
    """Build the program that loads and calls a library."""
    compile_with(checks, [str(_DRIVER), "-o", str(path), "-ldl", "-lpthread"])
    return path


def build_library(
    units: Sequence[TranslationUnit], simd: str, folder: Path, checks: Sequence[str] = BOUNDS
) -> Path:
    """Build all units into one library."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        made = list(threads.map(lambda unit: _object(unit, simd, checks), units))
    objects = [str(path) for path in made]
    library = folder / "model.so"
    compile_with(checks, ["-shared", "-o", str(library), *objects, "-lm", "-lpthread"])
    return library


def _object(unit: TranslationUnit, simd: str, checks: Sequence[str]) -> Path:
    text, kernels = unit.text(), kernels_folder()
    written = isinstance(unit.source, str)
    folder = kernels if written else Path(unit.source).parent
    flags = [*checks, *([] if unit.plain else _ARCH[simd])]
    macros = unit.defines()
    digest = hashlib.sha256(repr((_clang(), _version(), _FLAGS, flags, macros)).encode())
    digest.update(headers_hash(text, folder, unit.macros, kernels))
    digest.update(text)
    target = _cache() / f"{digest.hexdigest()}.o"
    if not target.is_file():
        source = target.with_suffix(".c") if written else Path(unit.source)
        if written:
            atomic_write(source, text)
        names = system_headers(unit.macros, kernels)
        precompiled = ["-include-pch", str(_precompiled(names, tuple(flags)))] if names else []
        _compile_whole([*flags, *precompiled, *macros, "-fPIC", "-c", str(source)], target)
    return target


@functools.cache
def _precompiled(names: tuple[str, ...], flags: tuple[str, ...]) -> Path:
    """Precompiled system headers, which take longer to parse than most kernels to compile."""
    key = repr((_clang(), _version(), _FLAGS, flags, names, str(_cache())))
    target = _cache() / f"{hashlib.sha256(key.encode()).hexdigest()}.pch"
    if not target.is_file():
        source = target.with_suffix(".h")
        atomic_write(source, "".join(f"#include <{name}>\n" for name in names).encode())
        _compile_whole([*flags, *_PRECOMPILE, str(source)], target)
    return target


def _cache() -> Path:
    folder = cache_folder().resolve() / "sanitized"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _compile_whole(arguments: Sequence[str], target: Path) -> None:
    """Build a file once for all concurrent workers, atomically."""
    with locked(target.parent / "locks" / target.name[:2]):
        if not target.is_file():
            _compile_to(arguments, target)


def _compile_to(arguments: Sequence[str], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        made = Path(work) / target.name
        compile_with([], [*arguments, "-o", str(made)])
        made.replace(target)


def run(*command: str) -> None:
    """Run the driver; fail with the sanitizer's report."""
    # The driver never frees its buffers.
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False, env=env
    )
    assert done.returncode == 0, done.stderr[-4000:]


def run_cases(driver: Path, library: Path, cases: bytes, size: int, threads: int) -> bytes:
    """Run `cases` through a model with one input and one output; return its `size` output bytes."""
    given, made, nothing = (library.with_name(n) for n in ("in.bin", "out.bin", "weights.bin"))
    given.write_bytes(cases)
    nothing.write_bytes(b"")
    files = (str(given), str(made), str(threads), str(len(cases)), str(size))
    run(str(driver), str(library), str(nothing), "0", "0", "1", "1", *files)
    return made.read_bytes()


def compile_with(checks: Sequence[str], arguments: Sequence[str]) -> None:
    """Run clang with the kernels' headers on the include path."""
    command = [_clang(), *_FLAGS, *checks, f"-I{kernels_folder()}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def _version() -> str:
    return subprocess.run(
        [_clang(), "--version"], capture_output=True, text=True, check=True
    ).stdout


@functools.cache
def _clang() -> str:
    names = [
        os.environ.get("EDGEKIT_CLANG", ""),
        *(f"clang-{v}" for v in range(25, 17, -1)),
        "clang",
    ]
    return next(found for name in names if name and (found := shutil.which(name)))
