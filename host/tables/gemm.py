"""The GEMM tables of this host: what the user built, over what the kit ships."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.paths import data_folder
from edgekit.kb.board import BoardProfile
from edgekit.kb.gemm_file import FOLDER, KnowledgeBaseError, load_table, table_name
from edgekit.kb.gemm_table import KnowledgeBase


def user_table(board: BoardProfile) -> Path:
    """Where `edgekit kb build` writes the table of a board."""
    return data_folder() / "gemm" / table_name(board)


def shipped_table(board: BoardProfile) -> Path:
    """Where the kit's own table of a board is, if there is one."""
    return FOLDER / table_name(board)


def kit_table(board: BoardProfile) -> KnowledgeBase | None:
    """The kit's own table of a board, if there is one: new rows come under its sequences, whatever
    state the user's table is in. Raises InputError for one that cannot be read."""
    path = shipped_table(board)
    return read_table(path) if path.exists() else None


def table_of(board: BoardProfile) -> KnowledgeBase:
    """The table that is used for a board. Raises InputError for one that cannot be read."""
    try:
        return KnowledgeBase.for_board(board, user_table(board).parent)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None


def read_table(path: Path) -> KnowledgeBase:
    """The table in a file. Raises InputError for one that cannot be read."""
    try:
        return load_table(path)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None
