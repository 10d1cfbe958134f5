"""Moves batches from NATS to the files of a shared store exactly once, even if writers are killed.

A writer records in NATS which messages of a partition it is about to write (the plan), writes them
to files named after them, and then records that they are written. A stale plan may be completed by
any writer: the same messages give the same rows under the same names, so a writer that was merely
slow does no harm. Duplicates, however old, are recognized by UUID in the files of their partition;
all batches of a board go through one partition.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
import re
import sqlite3
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.errors import EdgekitError, InputError, UnreachableError
from edgekit.host.fleet.profiles.batch import Arrival, decode_batch
from edgekit.host.fleet.profiles.bus import BatchMessage, Bus, Cursor, PendingBatches
from edgekit.host.fleet.profiles.parquet import part_path, table_of
from edgekit.host.fleet.profiles.shared import SharedStore

_log = logging.getLogger(__name__)

_MOST_MESSAGES = 4096  # per file
_MOST_BYTES = 16 << 20  # per file, unpacked
_LEASE_SECONDS = 20.0  # time without progress after which another writer's plan is stale
_POLL_SECONDS = 0.5
_LONGEST_WAIT = 30.0
_TRIES = 4
_Name = tuple[str, str]  # of a batch: its board and UUID
_PART = re.compile(r"p([0-9]{3})-([0-9a-f]{8})-[0-9]{12}-([0-9]{12})\.parquet")


@dataclass(frozen=True)
class WriterCounts:
    """Counts of a writer: batches and rows written, known batches, refused batches, files."""

    batches: int = 0
    rows: int = 0
    known: int = 0
    refused: int = 0
    files: int = 0

    def __add__(self, other: WriterCounts) -> WriterCounts:
        return WriterCounts(
            self.batches + other.batches,
            self.rows + other.rows,
            self.known + other.known,
            self.refused + other.refused,
            self.files + other.files,
        )


class ProfileWriter:
    """Writes batches from `bus` to `store`. A partition is written every `every` seconds, or once
    there are enough messages to fill a file: few large files are faster to read than many small
    ones. After `lease` seconds without progress, the plan of another writer is taken over."""

    def __init__(
        self, bus: Bus, store: SharedStore, every: float, lease: float = _LEASE_SECONDS
    ) -> None:
        self._bus, self._store, self._every, self._lease = bus, store, every, lease
        self._me = uuid.uuid4().hex
        self._known = _Known(bus.id, store)
        self._order = random.Random(self._me).sample(range(bus.partitions), bus.partitions)
        self._since: dict[int, float] = {}  # when messages started to wait, by partition
        self._plans: dict[int, tuple[int, float]] = {}  # others' plans: revision and first seen
        self._idle = False  # nothing was waiting at the last check
        self.written = WriterCounts()
        store.make()

    def run(
        self, stopped: threading.Event, once: bool, trouble: Callable[[str], None]
    ) -> WriterCounts:
        """Runs until `stopped`, or with `once` until all waiting batches are written. Errors are
        reported to `trouble` and retried; with `once` only an UnreachableError is retried, a
        limited number of times."""
        wait = 0.0
        silent = 0
        while not stopped.wait(wait):
            try:
                done = self.round(now=once)
                silent = 0
            except EdgekitError as error:
                silent += 1
                if once and (silent == _TRIES or not isinstance(error, UnreachableError)):
                    raise
                wait = min(max(2 * wait, 1.0), _LONGEST_WAIT)
                trouble(f"{error}; trying again in {wait:.0f} s")
                continue
            if once and self._idle:
                break
            wait = 0.0 if done else _POLL_SECONDS
        return self.written

    def round(self, now: bool = False) -> bool:
        """Checks each partition once; returns whether any was written. `now` disables the wait for
        more messages."""
        waiting = self._bus.waiting()
        self._idle = not waiting
        done = False
        clock = time.monotonic()
        for partition in self._order:
            count = waiting.get(partition, 0)
            if not count:
                self._since.pop(partition, None)
                continue
            since = self._since.setdefault(partition, clock)
            if now or count >= _MOST_MESSAGES or clock - since >= self._every:
                done |= self._write_some(partition)
        return done

    def _write_some(self, partition: int) -> bool:
        cursor, revision = self._bus.cursor(partition)
        plan = cursor.plan
        if plan is not None and not self._may_take(partition, plan, revision):
            return False
        most, last = (plan.count, plan.last) if plan else (_MOST_MESSAGES, None)
        size = 1 << 62 if plan else _MOST_BYTES
        messages = self._bus.read(partition, cursor.done, last, most, size)
        if not messages:
            if plan is None:
                self._bus.forget(partition, cursor.done)  # left by a writer that was killed
            return False
        if plan is None:
            plan = PendingBatches(messages[-1].number, len(messages), self._me)
            moved = self._bus.move(partition, revision, Cursor(cursor.done, plan))
            if moved is None:
                return False
            revision = moved
        if len(messages) != plan.count:
            return False  # another writer wrote and removed them meanwhile
        written, found = self._write_batches(partition, cursor.done, plan, messages)
        if self._bus.move(partition, revision, Cursor(plan.last)) is None:
            return False
        self._known.add(partition, plan.last, found)
        self._bus.forget(partition, plan.last)
        self._since.pop(partition, None)
        self.written += written
        return True

    def _may_take(self, partition: int, plan: PendingBatches, revision: int) -> bool:
        """Whether the plan belongs to this writer, or its revision has not changed for `lease`
        seconds by the local clock. Clocks of different writers are never compared."""
        seen = self._plans.get(partition)
        if seen is None or seen[0] != revision:
            seen = self._plans[partition] = (revision, time.monotonic())
        return plan.by == self._me or time.monotonic() - seen[1] >= self._lease

    def _write_batches(
        self, partition: int, done: int, plan: PendingBatches, messages: Sequence[BatchMessage]
    ) -> tuple[WriterCounts, list[_Name]]:
        """Writes the new batches; returns the counts and their names. The result depends only on
        the messages and on what is written up to `done`, so all writers produce the same files."""
        arrivals: dict[_Name, Arrival] = {}
        came = refused = 0
        for message in messages:
            for body in _decode_bodies(message):
                came += 1
                try:
                    batch = decode_batch(body)
                except InputError as error:
                    name = hashlib.sha256(body).hexdigest()[:32]
                    self._store.keep_refused(name, body, f"{message.board}: {error}")
                    refused += 1
                    continue
                arrival = Arrival(message.board, message.received, batch)
                arrivals.setdefault((message.board, batch.uuid), arrival)
        known = self._known.among(partition, done, list(arrivals))
        files: dict[tuple[str, str], list[Arrival]] = {}
        for named, arrival in arrivals.items():
            if named not in known:
                date = datetime.fromtimestamp(arrival.received, UTC).date().isoformat()
                files.setdefault((arrival.batch.subject.profile, date), []).append(arrival)
        file = f"p{partition:03d}-{self._bus.id}-{done + 1:012d}-{plan.last:012d}"
        rows = 0
        for (profile, date), some in files.items():
            table = table_of(some)
            self._store.write(part_path(profile, date, file), table)
            rows += table.num_rows
        new = [name for name in arrivals if name not in known]
        written = WriterCounts(len(new), rows, came - refused - len(new), refused, len(files))
        return written, new


class _Known:
    """Known batches by partition, loaded on demand from the files of a store into a temporary
    database."""

    def __init__(self, stream: str, store: SharedStore) -> None:
        self._stream, self._store = stream, store
        self._folder = tempfile.TemporaryDirectory(prefix="edgekit-write-")
        self._db = sqlite3.connect(
            Path(self._folder.name) / "known.sqlite", isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(
            "CREATE TABLE known (partition INTEGER, board TEXT, uuid BLOB,"
            " PRIMARY KEY (partition, board, uuid)) STRICT, WITHOUT ROWID"
        )
        self._files: set[str] = set()
        self._done: dict[int, int] = {}

    def among(self, partition: int, done: int, names: Sequence[_Name]) -> set[_Name]:
        """The given batches that were written in messages up to number `done` of the partition, or
        came through another stream. Later files are ignored: they may contain these very
        messages."""
        if self._done.get(partition) != done:
            self._catch_up(partition, done)
        sql = "SELECT 1 FROM known WHERE partition IN (?, -1) AND board = ? AND uuid = ?"
        ask = self._db.execute
        return {
            (board, name)
            for board, name in names
            if ask(sql, (partition, board, bytes.fromhex(name))).fetchone()
        }

    def add(self, partition: int, done: int, names: Sequence[_Name]) -> None:
        """Records the batches written up to number `done`."""
        self._insert(partition, names)
        self._done[partition] = done

    def _catch_up(self, partition: int, done: int) -> None:
        for path in self._store.parts():
            found = _PART.fullmatch(path.rpartition("/")[2])
            if found is None or path in self._files:
                continue
            if found[2] == self._stream:
                if int(found[1]) != partition or int(found[3]) > done:
                    continue
                self._insert(partition, self._store.names(path))
            else:
                self._insert(-1, self._store.names(path))
            self._files.add(path)
        self._done[partition] = done

    def _insert(self, partition: int, names: Sequence[_Name]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT OR IGNORE INTO known VALUES (?, ?, ?)",
            ((partition, board, bytes.fromhex(name)) for board, name in names),
        )
        self._db.execute("COMMIT")


def _decode_bodies(message: BatchMessage) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(DeviceInputError):
        found.extend(bodies(message.stream))
    if not found:
        _log.error("profiles: message %d of NATS is not a batch of edgekit", message.number)
    return found
