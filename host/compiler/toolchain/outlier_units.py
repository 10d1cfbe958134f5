"""The C files of the outlier split in the kernels library."""

from __future__ import annotations

from edgekit.host.compiler.toolchain.zig import Unit, kernels_folder
from edgekit.kb.targets.board import BoardProfile

_FILES = ("mark", "split", "merge", "four", "outlier")


def outlier_units(board: BoardProfile) -> list[Unit]:
    """Its three kernels and what calls them, for one board."""
    folder = kernels_folder() / "outlier"
    simd = ("EK_SIMD", f'"simd/{board.simd}.h"')
    return [Unit(f"outlier_{name}", folder / f"{name}.c", (simd,)) for name in _FILES]
