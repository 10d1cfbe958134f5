"""Builds libedgekit-app.so, which runs deployed models from C programs on a board."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.zig import Toolchain, Unit, kernels_folder
from edgekit.kb.targets.board import BoardProfile

LIBRARY = "libedgekit-app.so"
HEADER = "ek_app.h"


def write_application(folder: Path, board: BoardProfile) -> None:
    """Writes the library and header into `folder`; BuildError if the compiler fails."""
    sources = kernels_folder() / "application"
    units = [Unit(path.stem, path, plain=True) for path in sorted(sources.glob("*.c"))]
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / HEADER, (sources / HEADER).read_bytes())
    library = Toolchain(board, cache_folder() / "objects").build(units, LIBRARY)
    atomic_write(folder / LIBRARY, library)
