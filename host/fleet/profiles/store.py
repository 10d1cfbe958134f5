"""The store of field profiles: batches arrive at least once and are kept exactly once.

catalog.sqlite                                 the batches and files that count; see catalog.py
parts/board_type=<profile>/date=<day>/*.parquet  the rows, by board type and day of arrival
merged/                                          a file of rows that will replace smaller ones
refused/<board>/                                 unreadable batches, unmodified; see refused.py
lock                                             exclusive for changes, shared for reads
merging                                          locked while files are merged

Boards wait for the exclusive lock, so little is done under it: streams are decoded before, those
that wait are stored by one transaction, and files are merged outside of it.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.files import locked, private_folder
from edgekit.host.common.paths import data_folder
from edgekit.host.errors import EdgekitError, InputError, TransferError
from edgekit.host.fleet.profiles.batch import Arrival, Batch, decode_batch
from edgekit.host.fleet.profiles.bus import Bus
from edgekit.host.fleet.profiles.catalog import BoardSummary, Catalog, ParquetPart
from edgekit.host.fleet.profiles.grouped import Grouped
from edgekit.host.fleet.profiles.parquet import (
    damaged,
    libraries,
    read_part,
    sync_folder,
    table_of,
    write_part,
)
from edgekit.host.fleet.profiles.refused import keep_refused

if TYPE_CHECKING:
    import pyarrow

WritePart = Callable[[Path, str, str, Iterable["pyarrow.Table"]], ParquetPart]
_MOST_BATCHES = 16_384  # of a stream
_MOST_TYPES = 8  # of boards in a stream, each of which needs a file
_MOST_REASONS = 10
_SMALL_BYTES = 4 << 20
_MOST_SMALL = 16  # number of files of a partition that triggers compaction


@dataclass(frozen=True)
class StoredBatches:
    """Counts of batches that were new or already known, and the reasons for refused ones; of one
    stream also the `batches`."""

    new: int = 0
    known: int = 0
    rows: int = 0
    refused: tuple[str, ...] = field(default=())
    batches: tuple[Batch, ...] = field(default=(), repr=False, compare=False)  # that were read

    def __add__(self, other: StoredBatches) -> StoredBatches:
        return StoredBatches(
            self.new + other.new,
            self.known + other.known,
            self.rows + other.rows,
            self.refused + other.refused,
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Some different reasons, few enough to print."""
        return tuple(dict.fromkeys(self.refused))[:_MOST_REASONS]


@dataclass(frozen=True)
class _Rows:
    """Batches of a board for boards of one type, and their rows."""

    board: str
    profile: str
    date: str
    arrivals: list[Arrival]
    table: pyarrow.Table

    @property
    def uuids(self) -> list[str]:
        return [arrival.batch.uuid for arrival in self.arrivals]

    def without(self, known: set[str]) -> _Rows | None:
        """The batches whose UUIDs are not `known`, if any."""
        new = [arrival for arrival in self.arrivals if arrival.batch.uuid not in known]
        if len(new) == len(self.arrivals) or not new:
            return self if new else None
        import pyarrow.compute as pc

        pa, _ = libraries()
        old = pc.is_in(self.table["uuid"], value_set=pa.array(sorted(known)))
        return _Rows(self.board, self.profile, self.date, new, self.table.filter(pc.invert(old)))


class ProfileStore:
    """The store in `folder`, by default the user's; `now` returns seconds since 1970, and `write`
    writes a file of rows durably.

    Boards' clocks are never trusted: partitions use the day of arrival.
    """

    remote = None  # files are local

    def __init__(
        self,
        folder: Path | None = None,
        now: Callable[[], float] = time.time,
        write: WritePart = write_part,
    ) -> None:
        self.folder = folder or data_folder() / "profiles"
        self._parts = self.folder / "parts"
        self._now, self._write = now, write
        self._commits = Grouped(self._commit)
        self._is_clean = False  # of what killed processes left, as far as this one knows

    def add(self, board: str, stream: bytes, most_batches: int = _MOST_BATCHES) -> StoredBatches:
        """Stores the batches of a stream from `board`; durable when this returns.

        TransferError if the stream was damaged in transit, or has more than `most_batches`; nothing
        is stored then. Batches that arrive intact but do not decode are kept in refused/.
        """
        came, found, refused = self._take_in(board, stream, most_batches)
        new, rows = self._commits.ask(self._tables(board, found)) if found else (0, 0)
        again = came - len(refused) - new
        read = tuple(batch for batch, _ in found)
        return StoredBatches(new, again, rows, tuple(why for _, why in refused), read)

    def hand_over(
        self, board: str, stream: bytes, bus: Bus, most_batches: int = _MOST_BATCHES
    ) -> StoredBatches:
        """Like `add`, but publishes to the writers behind `bus`, which remove duplicates."""
        _, found, refused = self._take_in(board, stream, most_batches)
        if found:
            bus.publish(board, [body for _, body in found])
        read = tuple(batch for batch, _ in found)
        rows = sum(batch.rows for batch in read)
        return StoredBatches(len(found), 0, rows, tuple(why for _, why in refused), read)

    def _take_in(
        self, board: str, stream: bytes, most_batches: int
    ) -> tuple[int, list[tuple[Batch, bytes]], list[tuple[bytes, str]]]:
        """Splits a stream, and keeps what cannot be read."""
        came, found, refused = _split_stream(board, stream, most_batches)
        if refused:
            self._make_folder()
            keep_refused(self.folder / "refused", board, refused)
        return came, found, refused

    def boards(self) -> list[BoardSummary]:
        """Summary of each board."""
        with self.reading() as (catalog, _):
            return catalog.boards()

    def compact(self) -> int:
        """Merges the small files of each partition; returns the number of files removed."""
        gone = 0
        self._make_folder()
        with locked(self.folder / "merging"):
            small: dict[str, list[ParquetPart]] = {}
            self._is_clean = False
            with self._exclusive_catalog() as catalog:
                parts = catalog.parts()
            for part in parts:
                if part.bytes < _SMALL_BYTES and self._is_intact(part):
                    small.setdefault(part.path.rpartition("/")[0], []).append(part)
            for parts in small.values():
                tables = self._read_tables(parts) if len(parts) > _MOST_SMALL else {}
                if len(tables) > 1:
                    gone += self._merge(tables)
        return gone

    def _merge(self, tables: dict[ParquetPart, pyarrow.Table]) -> int:
        """Replaces files by one; returns the number of files removed."""
        old = list(tables)
        profile = old[0].path.partition("/")[0].partition("=")[2]
        merged = self.folder / "merged"
        shutil.rmtree(merged, ignore_errors=True)  # left by a killed process
        new = self._write(merged, profile, old[0].date, tables.values())
        with self._exclusive_catalog() as catalog:
            is_current = set(old) <= set(catalog.parts())  # none was deleted meanwhile
            if is_current:
                path = (merged / new.path).replace(self._parts / new.path)
                sync_folder(path.parent)
                catalog.replace(old, new)
                self._delete_parts(old)
        shutil.rmtree(merged)
        return len(old) if is_current else 0

    def _read_tables(self, parts: Iterable[ParquetPart]) -> dict[ParquetPart, pyarrow.Table]:
        """Reads the rows of files; skips corrupted ones, which readers report."""
        found = {}
        for part in parts:
            with contextlib.suppress(TransferError):
                found[part] = read_part(self._parts / part.path)
        return found

    def forget(self, days: int | None = None, most_bytes: int | None = None) -> tuple[int, int]:
        """Deletes data that arrived more than `days` ago, and the oldest data above `most_bytes`;
        returns the counts of files and rows. UUIDs of deleted batches are kept, so that late
        duplicates stay out."""
        with self._exclusive_catalog() as catalog:
            parts = catalog.parts()  # oldest first
            old = self._count_older(days, parts) if days is not None else 0
            if most_bytes is not None:
                room = sum(part.bytes for part in parts[old:]) - most_bytes
                while room > 0:
                    room -= parts[old].bytes
                    old += 1
            catalog.replace(parts[:old], None)
            self._delete_parts(parts[:old])
        return old, sum(part.rows for part in parts[:old])

    def _count_older(self, days: int, parts: list[ParquetPart]) -> int:
        """Number of these parts that arrived more than `days` ago."""
        last = datetime.fromtimestamp(self._now(), UTC) - timedelta(days=days)
        return sum(part.date < last.date().isoformat() for part in parts)

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[Catalog, list[Path]]]:
        """The catalog and the Parquet files that count, locked against removal. TransferError names
        a missing or truncated file."""
        self._make_folder()
        if not (self.folder / "catalog.sqlite").exists():
            with self._exclusive_catalog():
                pass
        with locked(self.folder / "lock", shared=True), self._open_catalog() as catalog:
            parts = catalog.parts()
            for part in parts:
                if not self._is_intact(part):
                    path = self._parts / part.path
                    raise damaged(path, f"not {part.bytes} bytes")
            yield catalog, [self._parts / part.path for part in parts]

    def _tables(self, board: str, found: list[tuple[Batch, bytes]]) -> list[_Rows]:
        """The rows of batches that arrived now, by board type."""
        received = self._now()
        date = datetime.fromtimestamp(received, UTC).date().isoformat()
        batches = {batch.uuid: batch for batch, _ in found}
        by_profile: dict[str, list[Arrival]] = {}
        for batch in batches.values():
            arrival = Arrival(board, received, batch)
            by_profile.setdefault(batch.subject.profile, []).append(arrival)
        if len(by_profile) > _MOST_TYPES:
            raise TransferError(
                f"board '{board}': expected at most {_MOST_TYPES} board types, found "
                f"{len(by_profile)}"
            )
        return [
            _Rows(board, profile, date, some, table_of(some))
            for profile, some in by_profile.items()
        ]

    def _commit(self, streams: Sequence[list[_Rows]]) -> list[tuple[int, int]]:
        """Stores the rows of several streams, without batches that are known; returns the counts of
        batches and rows that were new in each."""
        files: dict[tuple[str, str], list[_Rows]] = {}
        taken: dict[str, set[str]] = defaultdict(set)
        counts = []
        with self._exclusive_catalog() as catalog:
            for stream in streams:
                new: list[_Rows] = []
                for rows in stream:
                    known = catalog.known(rows.board, rows.uuids) | taken[rows.board]
                    if left := rows.without(known):
                        taken[rows.board].update(left.uuids)
                        files.setdefault((rows.profile, rows.date), []).append(left)
                        new.append(left)
                counts.append(
                    (sum(len(n.arrivals) for n in new), sum(n.table.num_rows for n in new))
                )
            if files:
                self._write_files(catalog, files)
        return counts

    def _write_files(self, catalog: Catalog, files: dict[tuple[str, str], list[_Rows]]) -> None:
        """Writes a file for each board type and day, then all into the catalog."""
        stored: list[tuple[ParquetPart, list[Arrival]]] = []
        try:
            for (profile, date), some in files.items():
                part = self._write(self._parts, profile, date, [rows.table for rows in some])
                stored.append((part, [arrival for rows in some for arrival in rows.arrivals]))
            catalog.add(stored)
        except Exception:
            with contextlib.suppress(OSError, EdgekitError):
                self._delete_leftovers(catalog)
            raise

    @contextlib.contextmanager
    def _exclusive_catalog(self) -> Iterator[Catalog]:
        """The catalog, locked exclusively."""
        self._make_folder()
        with locked(self.folder / "lock"), self._open_catalog() as catalog:
            if not self._is_clean:
                self._delete_leftovers(catalog)
                self._is_clean = True
            yield catalog

    def _delete_leftovers(self, catalog: Catalog) -> None:
        """Deletes uncataloged files that killed processes or full disks left."""
        counted = {part.path for part in catalog.parts()}
        for path in self._parts.glob("*/*/*"):
            if str(path.relative_to(self._parts)) not in counted:
                path.unlink()
        for path in self._parts.glob("*/*/.*"):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _open_catalog(self) -> Iterator[Catalog]:
        used = any(self._parts.glob("*/*/*.parquet"))
        catalog = Catalog(self.folder / "catalog.sqlite", used)
        try:
            yield catalog
        finally:
            catalog.close()

    def _make_folder(self) -> None:
        private_folder(self.folder)
        self._parts.mkdir(mode=0o700, exist_ok=True)

    def _is_intact(self, part: ParquetPart) -> bool:
        """Whether the file exists with its recorded size; Parquet itself checks the footer."""
        path = self._parts / part.path
        return path.is_file() and path.stat().st_size == part.bytes

    def _delete_parts(self, parts: Iterable[ParquetPart]) -> None:
        for part in parts:
            with contextlib.suppress(OSError):  # a leftover file is deleted by the next change
                (self._parts / part.path).unlink(missing_ok=True)


def _split_stream(
    board: str, stream: bytes, most: int
) -> tuple[int, list[tuple[Batch, bytes]], list[tuple[bytes, str]]]:
    """Splits a stream into batches: the total, those that decode with their bodies, and the others
    with the reason. TransferError if the stream was damaged in transit, or has more than `most`."""
    try:
        came = list(itertools.islice(bodies(stream), most + 1))
    except DeviceInputError as error:
        raise TransferError(f"board '{board}': {error}; fetch it again") from None
    if len(came) > most:
        raise TransferError(f"board '{board}': expected at most {most} batches, found more")
    found: list[tuple[Batch, bytes]] = []
    refused: list[tuple[bytes, str]] = []
    for body in came:
        try:
            found.append((decode_batch(body), body))
        except InputError as error:
            refused.append((body, str(error)))
    return len(came), found, refused
