"""The C compiler for tests that compare kernels with the reference."""

from __future__ import annotations

import os

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.kb.targets.board import BoardProfile


def toolchain_for(board: BoardProfile) -> Toolchain:
    """A compiler without optimization, which takes a third of the time and gives the same results.

    `scripts/test --all` sets EDGEKIT_TEST_ALL, which enables the optimizations that users get.
    """
    flags = () if "EDGEKIT_TEST_ALL" in os.environ else ("-O0",)
    return Toolchain(board, cache_folder() / "objects", flags)
