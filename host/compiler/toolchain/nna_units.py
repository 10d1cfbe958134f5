"""The C files of the emulated NNA in the kernel library."""

from __future__ import annotations

from edgekit.host.compiler.toolchain.zig import TranslationUnit, kernels_folder
from edgekit.kb.targets.board import BoardProfile


def nna_units(board: BoardProfile) -> list[TranslationUnit]:
    """The native emulator, for one board."""
    macros = (
        ("EK_SIMD", f'"simd/{board.simd}.h"'),
        ("NV", str(board.isa.nna_vectors)),
    )
    return [TranslationUnit("nna", kernels_folder() / "nna/nna.c", macros)]
