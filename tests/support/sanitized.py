"""Kernels built with AddressSanitizer and UndefinedBehaviorSanitizer, and run by a C driver.

Inputs, outputs and weights are separate heap blocks, so a read or write past any of them ends the
run. Needs clang with its runtime (Debian: clang-19 libclang-rt-19-dev).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel_runs import x86_boards

from edgekit.host.build.toolchain import Unit, kernels_folder

_DRIVER = Path(__file__).parents[1] / "cross" / "driver.c"
_ARCH = {
    "scalar": [],
    "sse2": [],
    "avx2": ["-march=x86-64-v3"],
    "avx512vnni": ["-march=x86-64-v4", "-mavx512vnni"],
}
BOUNDS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
RACES = ["-fsanitize=thread"]
BOARDS = {board.simd: board for board in x86_boards()}


def usable(simd: str) -> str:
    """`simd`, or what every x86 machine has if this one has it not."""
    return simd if simd in BOARDS else "sse2"


def build_driver(path: Path, checks: Sequence[str] = BOUNDS) -> Path:
    """The program that loads a library and calls it."""
    compile_with(checks, [str(_DRIVER), "-o", str(path), "-ldl", "-lpthread"])
    return path


def build_library(
    units: Sequence[Unit], simd: str, folder: Path, checks: Sequence[str] = BOUNDS
) -> Path:
    """All units as one library."""

    def compiled(unit: Unit) -> str:
        source = unit.source
        if isinstance(source, str):
            source = folder / f"{unit.name}.c"
            source.write_text(unit.text().decode())
        target = str(folder / f"{unit.name}.o")
        macros = [f"-D{key}={value}" for key, value in unit.macros]
        arch = [] if unit.plain else _ARCH[simd]
        compile_with(checks, [*arch, *macros, "-fPIC", "-c", str(source), "-o", target])
        return target

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        objects = list(threads.map(compiled, units))
    library = folder / "model.so"
    compile_with(checks, ["-shared", "-o", str(library), *objects, "-lm", "-lpthread"])
    return library


def run(*command: str) -> None:
    """Runs the driver; fails with what a sanitizer said."""
    # The driver leaves its buffers to the end of the process.
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stderr[-4000:]


def run_cases(driver: Path, library: Path, cases: bytes, size: int, threads: int) -> bytes:
    """The `size` bytes that a model of one input and one output makes of `cases`."""
    given, made, nothing = (library.with_name(n) for n in ("in.bin", "out.bin", "weights.bin"))
    given.write_bytes(cases)
    nothing.write_bytes(b"")
    files = (str(given), str(made), str(threads), str(len(cases)), str(size))
    run(str(driver), str(library), str(nothing), "0", "0", "1", "1", *files)
    return made.read_bytes()


def compile_with(checks: Sequence[str], arguments: Sequence[str]) -> None:
    """Calls clang with the kernels' headers in reach."""
    command = [_clang(), "-std=gnu11", "-O1", "-g", *checks, f"-I{kernels_folder()}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _clang() -> str:
    names = [
        os.environ.get("EDGEKIT_CLANG", ""),
        *(f"clang-{v}" for v in range(25, 17, -1)),
        "clang",
    ]
    return next(found for name in names if name and (found := shutil.which(name)))
