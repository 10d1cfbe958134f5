"""Tables built from the user's own measurements, in the data folder."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.common.paths import data_folder
from edgekit.kb.tables.paths import Kind, table_name
from edgekit.kb.targets.board import BoardProfile


def user_file(kind: Kind, board: BoardProfile) -> Path:
    """Path of the user's table for a board, which need not exist."""
    return data_folder() / kind / table_name(board.platform)
