"""The store of field profiles: batches arrive at least once and are kept exactly once.

catalog.sqlite                                 the batches and files that count; see catalog.py
parts/board_type=<profile>/date=<day>/*.parquet  the rows, by board type and day of arrival
refused/<board>/                                 unreadable batches, unmodified; see refused.py
lock                                             exclusive for changes, shared for reads
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.files import locked, private_folder
from edgekit.host.common.paths import data_folder
from edgekit.host.errors import InputError, TransferError
from edgekit.host.fleet.profiles.batch import Batch, decode_batch
from edgekit.host.fleet.profiles.bus import Bus
from edgekit.host.fleet.profiles.catalog import BoardSummary, Catalog, Part
from edgekit.host.fleet.profiles.parquet import (
    Arrival,
    damaged,
    libraries,
    read_part,
    table_of,
    write_part,
)
from edgekit.host.fleet.profiles.refused import keep_refused

if TYPE_CHECKING:
    import pyarrow

WritePart = Callable[[Path, str, str, Iterable["pyarrow.Table"]], Part]
_MOST_BATCHES = 16_384  # of a stream
_MOST_REASONS = 10
_SMALL_BYTES = 4 << 20
_MOST_SMALL = 16  # number of files of a partition that triggers compaction


@dataclass(frozen=True)
class Stored:
    """Counts of batches that were new or already known, and the reasons for refused ones."""

    new: int = 0
    known: int = 0
    rows: int = 0
    refused: tuple[str, ...] = field(default=())

    def __add__(self, other: Stored) -> Stored:
        return Stored(
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
class _Arrived:
    """Batches of boards of one type, and their rows."""

    profile: str
    received: float
    batches: list[Batch]
    table: pyarrow.Table

    def without(self, known: set[str]) -> _Arrived | None:
        """The batches whose UUIDs are not `known`, if any."""
        new = [batch for batch in self.batches if batch.uuid not in known]
        if len(new) == len(self.batches) or not new:
            return self if new else None
        import pyarrow.compute as pc

        pa, _ = libraries()
        old = pc.is_in(self.table["uuid"], value_set=pa.array(sorted(known)))
        return replace(self, batches=new, table=self.table.filter(pc.invert(old)))


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

    def add(self, board: str, stream: bytes, most_batches: int = _MOST_BATCHES) -> Stored:
        """Stores the batches of a stream from `board`; durable when this returns.

        TransferError if the stream was damaged in transit, or has more than `most_batches`; nothing
        is stored then. Batches that arrive intact but do not decode are kept in refused/. Only the
        write itself holds the store's lock.
        """
        came, found, refused = self._take_in(board, stream, most_batches)
        batches = {batch.uuid: batch for batch, _ in found}
        arrived = self._tables(board, list(batches.values()))
        with self._exclusive_catalog() as catalog:
            known = catalog.known(board, list(batches))
            rows = self._store_tables(catalog, board, arrived, known)
        new = len(batches) - len(known)
        again = came - len(refused) - new
        return Stored(new, again, rows, tuple(why for _, why in refused))

    def hand_over(
        self, board: str, stream: bytes, bus: Bus, most_batches: int = _MOST_BATCHES
    ) -> Stored:
        """Like `add`, but publishes to the writers behind `bus`, which remove duplicates."""
        _, found, refused = self._take_in(board, stream, most_batches)
        if found:
            bus.publish(board, [body for _, body in found])
        rows = sum(len(batch.operators) for batch, _ in found)
        return Stored(len(found), 0, rows, tuple(why for _, why in refused))

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
        with self._exclusive_catalog() as catalog:
            small: dict[str, list[Part]] = {}
            for part in catalog.parts():
                if part.bytes < _SMALL_BYTES and self._is_intact(part):
                    small.setdefault(part.path.rpartition("/")[0], []).append(part)
            for parts in small.values():
                tables = self._read_tables(parts) if len(parts) > _MOST_SMALL else {}
                parts = list(tables)
                if len(parts) > 1:
                    profile = parts[0].path.partition("/")[0].partition("=")[2]
                    new = self._write(self._parts, profile, parts[0].date, tables.values())
                    catalog.replace(parts, new)
                    self._delete_parts(parts)
                    gone += len(parts)
        return gone

    def _read_tables(self, parts: Iterable[Part]) -> dict[Part, pyarrow.Table]:
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

    def _count_older(self, days: int, parts: list[Part]) -> int:
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

    def _tables(self, board: str, batches: list[Batch]) -> list[_Arrived]:
        """The rows of batches that arrived now, by board type."""
        received = self._now()
        by_profile: dict[str, list[Batch]] = {}
        for batch in batches:
            by_profile.setdefault(batch.subject.profile, []).append(batch)
        return [
            _Arrived(
                profile, received, some, table_of([Arrival(board, received, one) for one in some])
            )
            for profile, some in by_profile.items()
        ]

    def _store_tables(
        self, catalog: Catalog, board: str, arrived: list[_Arrived], known: set[str]
    ) -> int:
        """Stores the batches that are not `known`; returns the rows."""
        stored: list[tuple[Part, list[Batch]]] = []
        received = 0.0
        try:
            for some in arrived:
                received = some.received
                date = datetime.fromtimestamp(received, UTC).date().isoformat()
                if new := some.without(known):
                    part = self._write(self._parts, new.profile, date, [new.table])
                    stored.append((part, new.batches))
            if stored:
                catalog.add(board, received, stored)
        except Exception:
            self._delete_parts(part for part, _ in stored)
            raise
        return sum(part.rows for part, _ in stored)

    @contextlib.contextmanager
    def _exclusive_catalog(self) -> Iterator[Catalog]:
        """The catalog, locked exclusively; first deletes uncataloged files left by a killed
        process."""
        self._make_folder()
        with locked(self.folder / "lock"), self._open_catalog() as catalog:
            counted = {part.path for part in catalog.parts()}
            for path in self._parts.glob("*/*/*"):
                if str(path.relative_to(self._parts)) not in counted:
                    path.unlink()
            for path in self._parts.glob("*/*/.*"):
                path.unlink(missing_ok=True)
            yield catalog

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

    def _is_intact(self, part: Part) -> bool:
        """Whether the file exists with its recorded size; Parquet itself checks the footer."""
        path = self._parts / part.path
        return path.is_file() and path.stat().st_size == part.bytes

    def _delete_parts(self, parts: Iterable[Part]) -> None:
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
