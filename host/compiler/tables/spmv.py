"""SpMV tables of this host: the user's rows take precedence over edgekit's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from edgekit.device.runtime.arrays.sparse_table import SpmvRow, SpmvTable, read_table
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.tables.user_files import user_file
from edgekit.host.errors import InputError
from edgekit.kb.tables.paths import found_tables, shipped_folder
from edgekit.kb.targets.board import BoardProfile


def user_spmv_table(board: BoardProfile) -> Path:
    """Path of the table that `edgekit lab tune sparse` writes for a board."""
    return user_file("spmv", board)


def spmv_table_of(board: BoardProfile) -> SpmvTable:
    """Merge the user's rows over edgekit's, each from the nearest platform that has any.

    Raises InputError for a table that cannot be read.
    """
    rows: dict[object, SpmvRow] = {}
    for folder in (shipped_folder("spmv"), user_spmv_table(board).parent):
        for _, path in itertools.islice(found_tables(board, folder), 1):
            rows |= {row.key: row for row in _read(path).rows}
    return SpmvTable(board.platform, tuple(rows.values()))


def add_spmv_rows(board: BoardProfile, new: Iterable[SpmvRow], path: Path) -> SpmvTable:
    """Merge rows into the table at `path`, replacing equal keys; raises InputError, OSError."""
    old = _read(path).rows if path.exists() else ()
    rows = {row.key: row for row in (*old, *new)}
    table = SpmvTable(board.platform, tuple(rows.values()))
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, table.text().encode())
    return table


def _read(path: Path) -> SpmvTable:
    try:
        return read_table(path)
    except DeviceInputError as error:
        raise InputError(str(error)) from None
