"""Builds libedgekit-app.so, which runs deployed models and kernels from C programs on a board, with
its headers and the files by which pkg-config and CMake find both."""

from __future__ import annotations

from pathlib import Path

from edgekit.device.runtime.agent.kernels import C_FILES, C_LIBRARY
from edgekit.device.version import VERSION
from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit, kernels_folder
from edgekit.kb.targets.board import BoardProfile


def application_files(board: BoardProfile, cache: Path | None = None) -> dict[str, bytes]:
    """The files by name; objects are kept in `cache`, by default the user's. BuildError if the
    compiler fails."""
    sources = kernels_folder() / "application"
    units = [TranslationUnit(path.stem, path, plain=True) for path in sorted(sources.glob("*.c"))]
    toolchain = Toolchain(board, (cache or cache_folder()) / "objects")
    files = {C_LIBRARY: toolchain.build(units, C_LIBRARY)}
    for name in C_FILES:
        if name != C_LIBRARY:
            files[name] = (sources / name).read_bytes().replace(b"@VERSION@", VERSION.encode())
    return files


def write_application(folder: Path, board: BoardProfile) -> None:
    """Writes the files into `folder`; BuildError if the compiler fails."""
    files = application_files(board)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        atomic_write(folder / name, data)
