"""The C files of the emulated NNA in the kernels library."""

from __future__ import annotations

from edgekit.host.build.toolchain import Unit, kernels_folder
from edgekit.kb.board import BoardProfile

# Vectors of output channels at once: what fits into registers beside four points.
_VECTORS = {"neon": 1, "neon32": 1, "sse2": 1, "neondot": 4}


def nna_units(board: BoardProfile) -> list[Unit]:
    """The native emulator, for one board."""
    macros = (
        ("EK_SIMD", f'"simd/{board.simd}.h"'),
        ("NV", str(_VECTORS.get(board.simd, 2))),
    )
    return [Unit("nna", kernels_folder() / "nna/nna.c", macros)]
