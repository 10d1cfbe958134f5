"""The store of field profiles: batches arrive at least once and are kept exactly once.

catalogue.sqlite                                 the batches and files that count; see catalogue.py
parts/board_type=<profile>/date=<day>/*.parquet  the rows, by board type and day of arrival
refused/                                         unreadable batches, unmodified
lock                                             exclusive for changes, shared for reads
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.files import atomic_write, locked
from edgekit.host.common.paths import data_folder
from edgekit.host.errors import InputError, TransferError
from edgekit.host.fleet.profiles.batch import Batch, decode_batch
from edgekit.host.fleet.profiles.bus import Bus
from edgekit.host.fleet.profiles.catalogue import BoardSummary, Catalogue, Part
from edgekit.host.fleet.profiles.parquet import (
    Arrival,
    damaged,
    read_part,
    sync_folder,
    table_of,
    write_part,
)

_MOST_BYTES = 64 << 20
_MOST_BATCHES = 10_000
_LOG = logging.getLogger(__name__)


def keep_refused(
    folder: Path,
    board: str,
    refused: Iterable[tuple[bytes, str]],
    most_batches: int = _MOST_BATCHES,
    most_bytes: int = _MOST_BYTES,
) -> None:
    """Stores rejected batches with the reason, deduplicated; the oldest above `most_batches` or
    `most_bytes` are deleted and counted in the log."""
    for body, why in refused:
        folder.mkdir(exist_ok=True)
        name = hashlib.sha256(body).hexdigest()[:32]
        atomic_write(folder / f"{name}.txt", f"{board}: {why}\n".encode())
        atomic_write(folder / f"{name}.json", body)
    if folder.is_dir():
        _evict_oldest(folder, most_batches, most_bytes)
        sync_folder(folder)


def _evict_oldest(folder: Path, most_batches: int, most_bytes: int) -> None:
    about = [(path.stat(), path) for path in folder.glob("*.json")]
    kept, size, gone = 0, 0, 0
    for found, path in sorted(about, key=lambda one: (-one[0].st_mtime_ns, one[1].name)):
        kept, size = kept + 1, size + found.st_size
        if kept > most_batches or size > most_bytes:
            path.unlink()
            path.with_suffix(".txt").unlink(missing_ok=True)
            gone += 1
    if gone:
        _LOG.warning("profiles: %d refused batches were removed for lack of space", gone)


if TYPE_CHECKING:
    import pyarrow

WritePart = Callable[[Path, str, str, Iterable["pyarrow.Table"]], Part]
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

    def add(self, board: str, stream: bytes) -> Stored:
        """Stores the batches of a stream from `board`; durable when this returns.

        TransferError if the stream was damaged in transit; nothing is stored then. Batches that
        arrive intact but do not decode are kept in refused/.
        """
        came, found, refused = _split_stream(board, stream)
        batches = {batch.uuid: batch for batch, _ in found}
        with self._exclusive_catalog() as catalogue:
            if refused:
                keep_refused(self.folder / "refused", board, refused)
            known = catalogue.known(list(batches))
            new = [batch for uuid, batch in batches.items() if uuid not in known]
            rows = self._store_batches(catalogue, board, new)
        again = came - len(refused) - len(new)
        return Stored(len(new), again, rows, tuple(why for _, why in refused))

    def hand_over(self, board: str, stream: bytes, bus: Bus) -> Stored:
        """Like `add`, but publishes to the writers behind `bus`, which remove duplicates."""
        _, found, refused = _split_stream(board, stream)
        if refused:
            self._make_folder()
            with locked(self.folder / "lock"):
                keep_refused(self.folder / "refused", board, refused)
        if found:
            bus.publish(board, [body for _, body in found])
        rows = sum(len(batch.operators) for batch, _ in found)
        return Stored(len(found), 0, rows, tuple(why for _, why in refused))

    def boards(self) -> list[BoardSummary]:
        """Summary of each board."""
        with self.reading() as (catalogue, _):
            return catalogue.boards()

    def compact(self) -> int:
        """Merges the small files of each partition; returns the number of files removed."""
        gone = 0
        with self._exclusive_catalog() as catalogue:
            small: dict[str, list[Part]] = {}
            for part in catalogue.parts():
                if part.bytes < _SMALL_BYTES and self._is_whole(part):
                    small.setdefault(part.path.rpartition("/")[0], []).append(part)
            for parts in small.values():
                tables = self._read_tables(parts) if len(parts) > _MOST_SMALL else {}
                parts = list(tables)
                if len(parts) > 1:
                    profile = parts[0].path.partition("/")[0].partition("=")[2]
                    new = self._write(self._parts, profile, parts[0].date, tables.values())
                    catalogue.replace(parts, new)
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
        with self._exclusive_catalog() as catalogue:
            parts = catalogue.parts()  # oldest first
            old = self._count_older(days, parts) if days is not None else 0
            if most_bytes is not None:
                room = sum(part.bytes for part in parts[old:]) - most_bytes
                while room > 0:
                    room -= parts[old].bytes
                    old += 1
            catalogue.replace(parts[:old], None)
            self._delete_parts(parts[:old])
        return old, sum(part.rows for part in parts[:old])

    def _count_older(self, days: int, parts: list[Part]) -> int:
        """Number of these parts that arrived more than `days` ago."""
        last = datetime.fromtimestamp(self._now(), UTC) - timedelta(days=days)
        return sum(part.date < last.date().isoformat() for part in parts)

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[Catalogue, list[Path]]]:
        """The catalog and the Parquet files that count, locked against removal. TransferError names
        a missing or truncated file."""
        self._make_folder()
        with locked(self.folder / "lock", shared=True), self._open_catalog() as catalogue:
            parts = catalogue.parts()
            for part in parts:
                if not self._is_whole(part):
                    path = self._parts / part.path
                    raise damaged(path, f"not {part.bytes} bytes")
            yield catalogue, [self._parts / part.path for part in parts]

    def _store_batches(self, catalogue: Catalogue, board: str, batches: list[Batch]) -> int:
        received = self._now()
        date = datetime.fromtimestamp(received, UTC).date().isoformat()
        by_profile: dict[str, list[Batch]] = {}
        for batch in batches:
            by_profile.setdefault(batch.subject.profile, []).append(batch)
        stored: list[tuple[Part, list[Batch]]] = []
        try:
            for profile, some in by_profile.items():
                table = table_of([Arrival(board, received, batch) for batch in some])
                stored.append((self._write(self._parts, profile, date, [table]), some))
            catalogue.add(board, received, stored)
        except Exception:
            self._delete_parts(part for part, _ in stored)
            raise
        return sum(part.rows for part, _ in stored)

    @contextlib.contextmanager
    def _exclusive_catalog(self) -> Iterator[Catalogue]:
        """The catalog, locked exclusively; first deletes uncataloged files left by a killed
        process."""
        self._make_folder()
        with locked(self.folder / "lock"), self._open_catalog() as catalogue:
            counted = {part.path for part in catalogue.parts()}
            for path in self._parts.glob("*/*/*"):
                if str(path.relative_to(self._parts)) not in counted:
                    path.unlink()
            for path in self._parts.glob("*/*/.*"):
                path.unlink(missing_ok=True)
            yield catalogue

    @contextlib.contextmanager
    def _open_catalog(self) -> Iterator[Catalogue]:
        used = any(self._parts.glob("*/*/*.parquet"))
        catalogue = Catalogue(self.folder / "catalogue.sqlite", used)
        try:
            yield catalogue
        finally:
            catalogue.close()

    def _make_folder(self) -> None:
        self._parts.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _is_whole(self, part: Part) -> bool:
        """Whether the file exists with its recorded size; Parquet itself checks the footer."""
        path = self._parts / part.path
        return path.is_file() and path.stat().st_size == part.bytes

    def _delete_parts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            with contextlib.suppress(OSError):  # a leftover file is deleted by the next change
                (self._parts / part.path).unlink(missing_ok=True)


def _split_stream(
    board: str, stream: bytes
) -> tuple[int, list[tuple[Batch, bytes]], list[tuple[bytes, str]]]:
    """Splits a stream into batches: the total, those that decode with their bodies, and the others
    with the reason. TransferError if the stream was damaged in transit."""
    try:
        came = list(bodies(stream))
    except DeviceInputError as error:
        raise TransferError(f"board '{board}': {error}; fetch it again") from None
    found: list[tuple[Batch, bytes]] = []
    refused: list[tuple[bytes, str]] = []
    for body in came:
        try:
            found.append((decode_batch(body), body))
        except InputError as error:
            refused.append((body, str(error)))
    return len(came), found, refused
