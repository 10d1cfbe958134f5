"""The catalog of the store: its batches, their boards and their Parquet files.

A Parquet file becomes part of the store in the same transaction that records the UUIDs of its
batches. So each batch is stored exactly once, even if a process is killed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.batch import Arrival

_CREATE = (
    "CREATE TABLE parts (path TEXT PRIMARY KEY, bytes INTEGER NOT NULL, rows INTEGER NOT NULL,"
    " date TEXT NOT NULL) STRICT",
    "CREATE TABLE batches (board TEXT NOT NULL, uuid TEXT NOT NULL, spool TEXT NOT NULL,"
    " sequence INTEGER NOT NULL, boot TEXT NOT NULL, release TEXT NOT NULL, received REAL NOT NULL,"
    " part TEXT NOT NULL, PRIMARY KEY (board, uuid)) STRICT, WITHOUT ROWID",
    "CREATE TABLE boards (board TEXT NOT NULL, spool TEXT NOT NULL, profile TEXT NOT NULL,"
    " dropped INTEGER NOT NULL, quarantined INTEGER NOT NULL, last REAL NOT NULL,"
    " PRIMARY KEY (board, spool)) STRICT",
)
_VERSION = 2
_ASKED = 500  # UUIDs per query


@dataclass(frozen=True)
class ParquetPart:
    """A Parquet file, by its path relative to the store."""

    path: str
    bytes: int
    rows: int
    date: str


@dataclass(frozen=True)
class BoardSummary:
    """Summary of a board's data in the store; `dropped` and `quarantined` are the board's own
    counts, None where they are not kept."""

    board: str
    profile: str
    batches: int
    releases: int
    dropped: int
    quarantined: int | None
    last: float


class Catalog:
    """The SQLite file at `path`; writers must hold the store's lock. If the store already has rows
    (`used`), a missing catalog is an error: a new empty one would lose them."""

    def __init__(self, path: Path, used: bool) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            version = self._version()
            if version not in (0, _VERSION):
                raise InputError(
                    f"{path}: expected a catalog of version {_VERSION}, found {version}; move the "
                    "store away to start a new one, or use the edgekit that wrote it"
                )
            if version == 0 and used:
                raise InputError(
                    f"{path}: expected the catalog of these profiles, found none; restore it "
                    "from a backup, or move the profiles away"
                )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            if version == 0:
                self._create_tables()
        except sqlite3.Error as error:
            raise self._catalog_error(error) from None

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _create_tables(self) -> None:
        """Creates the tables, unless another process did meanwhile."""
        with self._transaction():
            for statement in _CREATE if self._version() == 0 else ():
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        self._db.close()

    def known(self, board: str, uuids: Sequence[str]) -> set[str]:
        """The UUIDs of batches of `board` that are already stored."""
        found: set[str] = set()
        for start in range(0, len(uuids), _ASKED):
            some = uuids[start : start + _ASKED]
            marks = ",".join("?" * len(some))
            sql = f"SELECT uuid FROM batches WHERE board = ? AND uuid IN ({marks})"
            rows = self._query(sql, (board, *some))
            found.update(row[0] for row in rows)
        return found

    def add(self, stored: Iterable[tuple[ParquetPart, Sequence[Arrival]]]) -> None:
        """Adds Parquet files and their batches to the store in one transaction."""
        with self._transaction():
            for part, arrivals in stored:
                self._add_part(part)
                self._db.executemany(
                    "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    ((*_batch_row(arrival), part.path) for arrival in arrivals),
                )
                self._db.executemany(
                    "INSERT INTO boards VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                    " profile = excluded.profile, dropped = max(dropped, excluded.dropped),"
                    " quarantined = max(quarantined, excluded.quarantined), last = excluded.last",
                    map(_board_row, arrivals),
                )

    def replace(self, old: Sequence[ParquetPart], new: ParquetPart | None) -> None:
        """Replaces files by one, or removes them if `new` is None; their UUIDs are remembered
        forever."""
        with self._transaction():
            if new is not None:
                self._add_part(new)
            for part in old:
                self._db.execute("DELETE FROM parts WHERE path = ?", (part.path,))

    def parts(self) -> list[ParquetPart]:
        rows = self._query("SELECT path, bytes, rows, date FROM parts ORDER BY date, path")
        return [ParquetPart(*row) for row in rows]

    def boards(self) -> list[BoardSummary]:
        rows = self._query(
            "SELECT b.board, max(b.profile), (SELECT count(*) FROM batches WHERE board = b.board),"
            " (SELECT count(DISTINCT release) FROM batches WHERE board = b.board),"
            " sum(b.dropped), sum(b.quarantined), max(b.last)"
            " FROM boards b GROUP BY b.board ORDER BY b.board"
        )
        return [BoardSummary(*row) for row in rows]

    def _query(self, sql: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._catalog_error(error) from None

    def _add_part(self, part: ParquetPart) -> None:
        self._db.execute(
            "INSERT INTO parts VALUES (?, ?, ?, ?)", (part.path, part.bytes, part.rows, part.date)
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise self._catalog_error(error) from None
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _catalog_error(self, error: sqlite3.Error) -> InputError:
        return InputError(
            f"{self._path}: expected to read and write the catalog, found: {error}; free some "
            "space, or restore it from a backup"
        )


def _batch_row(arrival: Arrival) -> tuple[str | int | float, ...]:
    b = arrival.batch
    names = (arrival.board, b.uuid, b.spool, b.sequence, b.boot)
    return (*names, b.subject.release, arrival.received)


def _board_row(arrival: Arrival) -> tuple[str | int | float, ...]:
    b = arrival.batch
    return arrival.board, b.spool, b.subject.profile, b.dropped, b.quarantined, arrival.received
