"""GEMM tables of this host: the user's take precedence over edgekit's."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

from edgekit.host.compiler.tables.gemm_file import KnowledgeBaseError, board_table, load_table
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.tables.user_files import user_file
from edgekit.host.errors import InputError
from edgekit.kb.tables.paths import found_tables, shipped_folder
from edgekit.kb.targets.board import BoardProfile

_LOG = logging.getLogger(__name__)


def user_table(board: BoardProfile) -> Path:
    """Path of the table that `edgekit lab kb build` writes for a board."""
    return user_file("gemm", board)


def kit_table(board: BoardProfile) -> KnowledgeBase | None:
    """Return edgekit's table for a board, or None. New rows are added under its sequences, whatever
    the state of the user's table. Raises InputError if it cannot be read."""
    for platform, path in found_tables(board, shipped_folder("gemm")):
        return read_table(path).serving(board.platform, platform)
    return None


def table_of(board: BoardProfile) -> KnowledgeBase:
    """Return the table used for a board, reporting skipped rows once. Raises InputError if it
    cannot be read."""
    own = user_table(board)
    try:
        table = board_table(board, own.parent)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None
    if table.skipped:
        _, path = next(found_tables(board, own.parent, shipped_folder("gemm")))
        _log_once(left_out(table, path, board))
    return table


def left_out(table: KnowledgeBase, path: Path, board: BoardProfile) -> str:
    """Describe the skipped rows of a board's table (at least one)."""
    count, first = len(table.skipped), table.skipped[0]
    return (
        f"{path}: {count} of {count + len(table.rows) + len(table.operators)} rows are not used; "
        f"the first, {first}; build the table again: edgekit lab kb build --board {board.name}, or "
        "remove it"
    )


@functools.cache
def _log_once(line: str) -> None:
    """Log a line once per process."""
    _LOG.warning("%s", line)


def read_table(path: Path) -> KnowledgeBase:
    """Read a table file. Raises InputError if that fails."""
    try:
        return load_table(path)
    except KnowledgeBaseError as error:
        raise InputError(str(error)) from None
