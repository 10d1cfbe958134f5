"""Our programs that a simulated product needs besides the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgekit.host.compiler.toolchain.kernels import build_kernels
from edgekit.host.simulator.emulator import Emulator, plugin_of
from edgekit.host.simulator.model import runner_of
from edgekit.kb.targets.board import BoardProfile


@dataclass(frozen=True)
class Programs:
    """`kernels`: the library of a board's kernels; `runner`: the program that calls them; `plugin`:
    the emulator's plugin that times them."""

    kernels: bytes
    runner: Path
    plugin: Path


def build_programs(board: BoardProfile, emulator: Emulator) -> Programs:
    """The programs for a board, built unless they are in the cache."""
    return Programs(build_kernels(board), runner_of(board.arch), plugin_of(emulator))
