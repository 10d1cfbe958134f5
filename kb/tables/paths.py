"""The locations of a board's tables: files named by platform, found through profile inheritance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from edgekit.kb.targets.board import BoardProfile

Kind = Literal["gemm", "layouts", "orders", "spmv"]


def shipped_folder(kind: Kind) -> Path:
    """The folder of edgekit's own tables of a kind."""
    return Path(__file__).parent / kind


def table_name(platform: str) -> str:
    """The file name of a platform's table."""
    return f"{platform}.json"


def found_tables(board: BoardProfile, *folders: Path) -> Iterator[tuple[str, Path]]:
    """The platforms with a table for a board, and their files, starting with the board's own.

    For each platform the first folder that has a file is used.
    """
    for platform in board.platforms:
        for folder in folders:
            path = folder / table_name(platform)
            if path.exists():
                yield platform, path
