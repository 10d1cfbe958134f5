"""The C compiler for tests that compare kernels with the reference."""

from __future__ import annotations

import os
import sys

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.kb.targets.board import BoardProfile, load_board


def toolchain_for(board: BoardProfile) -> Toolchain:
    """A compiler without optimization, which takes a third of the time and gives the same results.

    `scripts/test --all` sets EDGEKIT_TEST_ALL, which enables the optimizations that users get.
    """
    flags = () if "EDGEKIT_TEST_ALL" in os.environ else ("-O0",)
    return Toolchain(board, cache_folder() / "objects", flags)


def program_compiler() -> tuple[str, ...]:
    """The command that compiles a program for this machine.

    The toolchain's cache has the C library for this target and optimization. Undefined behavior
    traps: the compiler's reports would need a library that takes 20 seconds to build.
    """
    checks = ("-fsanitize=undefined", "-fsanitize-trap=undefined")
    target = load_board("local").target
    return (sys.executable, "-m", "ziglang", "cc", "-target", target, "-O3", *checks)
