"""How many bytes an operator may take."""

from __future__ import annotations

from edgekit.host.compiler.options import CompileOptions
from edgekit.kb.targets.board import BoardProfile

_RESERVE = 8  # one part in eight of a board's memory is left to its system


def memory_limit(board: BoardProfile, options: CompileOptions) -> int | None:
    """What the user allows, else the board's memory but for a reserve; None where not known."""
    if options.memory_limit is not None:
        return options.memory_limit
    if not board.memory_bytes:
        return None
    return board.memory_bytes - board.memory_bytes // _RESERVE
