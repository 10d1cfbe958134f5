"""libedgekit-app.so: deployed models in C programs on a board, apart from any model.

    python -m edgekit.host.toolchain.application FOLDER [BOARD]

writes the library for a board profile (this machine's if left out) and its header.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgekit.host.files import write_whole
from edgekit.host.paths import cache_folder
from edgekit.host.toolchain.zig import Toolchain, Unit, kernels_folder
from edgekit.kb.board import BoardProfile, load_board

LIBRARY = "libedgekit-app.so"
HEADER = "ek_app.h"


def write_application(folder: Path, board: BoardProfile) -> None:
    """Writes library and header into `folder`; BuildError if the compiler fails."""
    sources = kernels_folder() / "application"
    units = [Unit(path.stem, path, plain=True) for path in sorted(sources.glob("*.c"))]
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / HEADER, (sources / HEADER).read_bytes())
    library = Toolchain(board, cache_folder() / "objects").build(units, LIBRARY)
    write_whole(folder / LIBRARY, library)


def main(arguments: list[str]) -> int:
    """Writes what a C program needs; prints the folder."""
    from edgekit.host.errors import EdgekitError

    try:
        if not 1 <= len(arguments) <= 2:
            raise ValueError("expected a folder and the name of a board profile")
        write_application(Path(arguments[0]), load_board(*arguments[1:] or ["local"]))
    except (EdgekitError, ValueError, OSError) as error:
        print(f"edgekit: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    print(arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
