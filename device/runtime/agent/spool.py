"""Batches waiting on the board to be fetched: one immutable file each, in a bounded folder.

spool/<sequence>-<uuid>.batch   created atomically
spool/.new                      being written; a leftover after a crash
spool/state.json                see _State; replaced atomically
spool/quarantine/               damaged files, the newest few
spool/lock                      held with flock for each change
spool/off                       disables sampling while it exists
spool/explore                   also tries other methods while it exists
spool/samples/                  of C programs, not yet batches; see c_samples.py

Sequence numbers have no gaps except for dropped batches, and outlive the files: `floor` is raised
before anything below it is deleted. So a crash between any two steps neither counts a dropped file
twice nor reuses a sequence number, and acknowledged batches do not reappear.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from pathlib import Path
from typing import IO, Iterator, List, Optional, Tuple

from edgekit.device.runtime.agent.batch import MOST_BATCH_BYTES, Batch, batch_bytes, check_file
from edgekit.device.runtime.errors import BusyError, InputError
from edgekit.device.runtime.record import Record, asdict, replace

MOST_BYTES = 4 << 20
_STATE_BYTES = 4096  # for the state and its successor
_QUARANTINED_SHARE = 8  # 1/8 of the cap each for quarantine and the samples of C programs
_PATIENCE_SECONDS = 10.0  # for adding: threads of a process may all end a batch at once
_AGAIN_SECONDS = 0.01
_NAME = re.compile(r"([0-9]{12})-([0-9a-f]{32})\.batch")
_SPOOL = re.compile(r"[0-9a-f]{32}")


class Disk:
    """The spool's file operations; tests make each of them fail."""

    def write(self, path: Path, data: bytes) -> None:
        """Writes a file and syncs it to disk."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync(self, folder: Path) -> None:
        """Makes renames and deletions durable."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Fetched(Record):
    """The oldest batches, as one stream of files; `left` more are waiting. Acknowledge them by
    `spool` and `through`, the highest sequence number that the stream covers."""

    spool: str
    through: int
    data: bytes
    left: int
    dropped: int
    quarantined: int


class _State(Record):
    """`spool` names this folder's sequence, `next` is a lower bound of the next number, and
    everything below `floor` has been deleted, or is about to be."""

    spool: str
    next: int = 1
    floor: int = 1
    dropped: int = 0
    quarantined: int = 0


class _File(Record):
    sequence: int
    path: Path
    bytes: int


class Spool:
    """The spool in `folder`, of at most `most_bytes`; any number of processes may use it."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, disk: Optional[Disk] = None):
        self.folder = folder
        self._most = most_bytes
        self._disk = disk or Disk()
        self._quarantine = folder / "quarantine"
        self._off = folder / "off"
        self._explore = folder / "explore"
        self.home = folder / "home.json"  # the host to push to, see push.py

    @property
    def is_off(self) -> bool:
        """Whether sampling is disabled on this board."""
        return self._off.exists()

    @property
    def explores(self) -> bool:
        """Whether samples of products also try other methods on this board."""
        return self._explore.exists()

    @property
    def waits(self) -> bool:
        """Whether any batch is waiting."""
        return any(_NAME.fullmatch(path.name) for path in self.folder.glob("*.batch"))

    def switch(self, mode: str) -> None:
        """Sets sampling to "on", "off" or "explore"; running processes notice when they are
        restarted."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, wanted in ((self._off, mode == "off"), (self._explore, mode == "explore")):
            if wanted:
                self._disk.write(path, b"")
            else:
                self._disk.unlink(path)
        self._disk.sync(self.folder)

    def add(self, batch: Batch) -> None:
        """Adds a batch, synced to disk; drops and counts the oldest ones to free space.

        OSError if the disk fails, BusyError if another process holds the spool for long, InputError
        if the batch is too large; then nothing has changed, except that old batches may have been
        dropped. A batch whose UUID is already waiting is not added again.
        """
        with self._locked(_PATIENCE_SECONDS):
            state, files = self._scan_folder()
            if any(file.path.stem.endswith(batch.uuid) for file in files):
                return
            sequence = _next_sequence(state, files)
            data = batch_bytes(batch, state.spool, sequence, state.dropped, state.quarantined)
            if len(data) > min(MOST_BATCH_BYTES, self._most // 2):
                raise InputError(f"profile batch: expected a shorter one, found {len(data)} bytes")
            dropped = self._make_room(state, files, len(data))
            if dropped != state.dropped:
                data = batch_bytes(batch, state.spool, sequence, dropped, state.quarantined)
            new = self.folder / ".new"
            try:
                self._disk.write(new, data)
                self._disk.rename(new, self.folder / f"{sequence:012d}-{batch.uuid}.batch")
            except OSError:
                self._disk.unlink(new)
                raise
            self._disk.sync(self.folder)

    def fetch(self, most_bytes: int) -> Fetched:
        """Returns the oldest batches that fit in `most_bytes`, at least one. Damaged files are
        quarantined and counted."""
        parts: List[bytes] = []
        with self._locked():
            state, files = self._scan_folder()
            through, taken = state.floor - 1, 0
            for file in files:
                if parts and taken + file.bytes > most_bytes:
                    break
                data = self._read_intact(file)
                if data is None:
                    state = self._quarantine_file(state, file)
                else:
                    parts.append(data)
                    taken += len(data)
                through = file.sequence
            left = sum(file.sequence > through for file in files)
            stream = b"".join(parts)
            return Fetched(state.spool, through, stream, left, state.dropped, state.quarantined)

    def quarantine(self, path: Path) -> None:
        """Quarantines and counts a file that could not be converted to a batch."""
        with self._locked(_PATIENCE_SECONDS):
            self._quarantine_file(self._scan_folder()[0], _File(0, path, path.lstat().st_size))

    def acknowledge(self, spool: str, through: int) -> None:
        """Deletes batches stored by a host; a no-op for another spool, or if repeated."""
        with self._locked():
            state, files = self._scan_folder()
            through = min(through, _next_sequence(state, files) - 1)
            if spool != state.spool or through < state.floor:
                return
            self._raise_floor(state, files, through + 1)

    @contextlib.contextmanager
    def _locked(self, patience: float = 0.0) -> Iterator[None]:
        """Locks the spool within `patience` seconds; else BusyError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + patience
        with (self.folder / "lock").open("a") as file:
            while not _try_lock(file):
                if time.monotonic() >= until:
                    raise BusyError(
                        "expected the profile spool to be free, found another process at it; "
                        "try again"
                    )
                time.sleep(_AGAIN_SECONDS)
            try:
                yield
            finally:  # a child process started meanwhile holds the file open until its exec
                fcntl.flock(file, fcntl.LOCK_UN)

    def _scan_folder(self) -> Tuple[_State, List[_File]]:
        """Returns the state and the waiting files in sequence; deletes leftovers of a crash."""
        names = {path.name for path in self.folder.iterdir()}
        matches = [m for m in map(_NAME.fullmatch, names) if m]
        all_files = sorted(
            (
                _File(int(m[1]), path, path.lstat().st_size)
                for m, path in ((m, self.folder / m[0]) for m in matches)
            ),
            key=lambda file: file.sequence,
        )
        state = self._read_state(all_files)
        for file in all_files:
            if file.sequence < state.floor:
                self._disk.unlink(file.path)
        for leftover in (".new", ".state"):
            if leftover in names:
                self._disk.unlink(self.folder / leftover)
        return state, [file for file in all_files if file.sequence >= state.floor]

    def _read_state(self, files: List[_File]) -> _State:
        path = self.folder / "state.json"
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError, RecursionError):
            found = _State(**json.loads(path.read_bytes()))
            counts = (found.next, found.floor, found.dropped, found.quarantined)
            if _SPOOL.fullmatch(found.spool) and all(type(n) is int and n >= 0 for n in counts):
                return found
        # Missing or damaged: start a new sequence under a new name.
        after = files[-1].sequence + 1 if files else 1
        state = _State(os.urandom(16).hex(), after)
        self._write_state(state)
        return state

    def _write_state(self, state: _State) -> None:
        new = self.folder / ".state"
        self._disk.write(new, json.dumps(asdict(state)).encode())
        self._disk.rename(new, self.folder / "state.json")
        self._disk.sync(self.folder)

    def _make_room(self, state: _State, files: List[_File], size: int) -> int:
        """Drops the oldest until `size` more bytes fit; returns the total ever dropped."""
        waiting = sum(file.bytes for file in files)
        most = self._most - 2 * (self._most // _QUARANTINED_SHARE) - _STATE_BYTES
        gone = 0
        while gone < len(files) and waiting + size > most:
            waiting -= files[gone].bytes
            gone += 1
        if gone:
            state = replace(state, dropped=state.dropped + gone)
            self._raise_floor(state, files, files[gone - 1].sequence + 1)
        return state.dropped

    def _raise_floor(self, state: _State, files: List[_File], floor: int) -> None:
        """Deletes everything below `floor`, after recording that."""
        self._write_state(replace(state, floor=floor, next=_next_sequence(state, files)))
        for file in files:
            if file.sequence < floor:
                self._disk.unlink(file.path)
        self._disk.sync(self.folder)

    def _read_intact(self, file: _File) -> Optional[bytes]:
        """Returns a file's bytes; None if they are damaged or unreadable."""
        if file.bytes > MOST_BATCH_BYTES + 128:
            return None
        try:
            data = file.path.read_bytes()
            check_file(data)
        except (OSError, InputError):
            return None
        return data

    def _quarantine_file(self, state: _State, file: _File) -> _State:
        """Moves a damaged file into quarantine, dropping the oldest ones there."""
        self._quarantine.mkdir(mode=0o700, exist_ok=True)
        kept = sorted(self._quarantine.iterdir())
        room = self._most // _QUARANTINED_SHARE - file.bytes
        while kept and sum(path.lstat().st_size for path in kept) > room:
            self._disk.unlink(kept.pop(0))
        state = replace(state, quarantined=state.quarantined + 1)
        self._write_state(replace(state, next=max(state.next, file.sequence + 1)))
        if room >= 0:
            self._disk.rename(file.path, self._quarantine / file.path.name)
        else:
            self._disk.unlink(file.path)
        self._disk.sync(self.folder)
        return state


def _try_lock(file: IO[str]) -> bool:
    """Tries to take the lock; returns whether that succeeded."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _next_sequence(state: _State, files: List[_File]) -> int:
    return max(state.next, files[-1].sequence + 1 if files else 1)
