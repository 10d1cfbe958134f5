"""The C compiler for tests: of kernels that they compare with the reference, and of programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.kb.targets.board import BoardProfile, load_board


def toolchain_for(board: BoardProfile) -> Toolchain:
    """A compiler without optimization, which takes a third of the time and gives the same results.

    `scripts/test --all` sets EDGEKIT_TEST_ALL, which enables the optimizations that users get.
    """
    flags = () if "EDGEKIT_TEST_ALL" in os.environ else ("-O0",)
    return Toolchain(board, cache_folder() / "objects", flags)


def compile_for(board: BoardProfile, source: Path, program: Path, *options: str) -> None:
    """Compiles a program in C for a board, with what the toolchain's cache has for its target; the
    compiler's own library takes longer to build than that of kernels."""
    zig, target = (sys.executable, "-m", "ziglang", "cc"), ("-target", board.target)
    caches = {
        f"ZIG_{name}_CACHE_DIR": str(cache_folder() / "objects" / folder)
        for name, folder in (("GLOBAL", "zig"), ("LOCAL", "zig-local"))
    }
    command = [*zig, *target, "-O3", "-s", "-rtlib=none", str(source), *options]
    subprocess.run([*command, "-o", str(program)], env={**os.environ, **caches}, check=True)


def program_compiler(target: str = "") -> tuple[str, ...]:
    """The command that compiles a program for a target, by default this machine.

    The toolchain's cache has the C library for this target and optimization. Undefined behavior
    traps: the compiler's reports would need a library that takes 20 seconds to build.
    """
    checks = ("-fsanitize=undefined", "-fsanitize-trap=undefined")
    target = target or load_board("local").target
    return (sys.executable, "-m", "ziglang", "cc", "-target", target, "-O3", *checks)
