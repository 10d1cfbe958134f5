"""The C compiler of tests that compare kernels with the reference."""

from __future__ import annotations

import os

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.kb.targets.board import BoardProfile


def toolchain_for(board: BoardProfile) -> Toolchain:
    """Compiles without optimization, which takes a third of the time for the same results.

    `scripts/test --all` sets EDGEKIT_TEST_ALL: it compiles what users run.
    """
    flags = () if "EDGEKIT_TEST_ALL" in os.environ else ("-O0",)
    return Toolchain(board, cache_folder() / "objects", flags)
