"""The GEMM tables of this host: what the user built, over what the kit ships."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

from edgekit.host.compiler.tables.user_files import user_file
from edgekit.host.errors import InputError
from edgekit.kb.tables.gemm_file import KnowledgeBaseError, board_table, load_table
from edgekit.kb.tables.gemm_table import KnowledgeBase
from edgekit.kb.tables.paths import found_tables, shipped_folder
from edgekit.kb.targets.board import BoardProfile

_LOG = logging.getLogger(__name__)


def user_table(board: BoardProfile) -> Path:
    """The file that `edgekit lab kb build` writes for a board."""
    return user_file("gemm", board)


def kit_table(board: BoardProfile) -> KnowledgeBase | None:
    """The kit's own table that serves a board, if there is one: new rows come under its sequences,
    whatever state the user's table is in. Raises InputError for one that cannot be read."""
    for platform, path in found_tables(board, shipped_folder("gemm")):
        return read_table(path).serving(board.platform, platform)
    return None


def table_of(board: BoardProfile) -> KnowledgeBase:
    """The table that is used for a board. Rows that it cannot compute are told once. Raises
    InputError for one that cannot be read."""
    own = user_table(board)
    try:
        table = board_table(board, own.parent)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None
    if table.skipped:
        _, path = next(found_tables(board, own.parent, shipped_folder("gemm")))
        _tell(left_out(table, path, board))
    return table


def left_out(table: KnowledgeBase, path: Path, board: BoardProfile) -> str:
    """A line on the rows of a file that a board's table leaves out, of which there are some."""
    count, first = len(table.skipped), table.skipped[0]
    return (
        f"{path}: {count} of {count + len(table.rows) + len(table.operators)} rows are not used; "
        f"the first, {first}; build the table again: edgekit lab kb build --board {board.name}, or "
        "remove it"
    )


@functools.cache
def _tell(line: str) -> None:
    """Once, however often the table is read."""
    _LOG.warning("%s", line)


def read_table(path: Path) -> KnowledgeBase:
    """The table in a file. Raises InputError for one that cannot be read."""
    try:
        return load_table(path)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None
