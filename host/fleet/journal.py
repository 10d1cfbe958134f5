"""Write-ahead journal of a rollout on the host's disk.

rollouts/lock                 held while a rollout is created
rollouts/<id>/plan.json       the goal of the rollout
rollouts/<id>/bundles/*.ekb   the bundle for each kind of board
rollouts/<id>/journal.jsonl   one event per line, fsynced; an incomplete last line is ignored
rollouts/<id>/lock            held by the process that executes the rollout
rollouts/<id>/stop            why the rollout shall stop, written by another process

The boards are authoritative: an event lost in a crash is recovered by querying them.
"""

from __future__ import annotations

import calendar
import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from edgekit.host.common.files import atomic_write, locked, read_file, take_lock
from edgekit.host.common.paths import data_folder
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import BusyError, InputError, TransferError
from edgekit.host.fleet.rollout import BoardEvent, RolloutPlan, RolloutProgress, Verdict
from edgekit.kb.decoding import decode_json

NEWEST = "newest"  # the last rollout, instead of an id
_KEPT = 20  # number of finished rollouts to keep
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_PLAN, _JOURNAL, _LOCK, _BUNDLES = "plan.json", "journal.jsonl", "lock", "bundles"
_STOP = "stop"
_MOST_REASON = 200  # characters


@dataclass(frozen=True)
class _Line:
    """One journal line: an event of a board, the start of a batch, or the end."""

    at: float
    event: BoardEvent | None = None
    batch: tuple[str, ...] = ()
    canary: bool = False
    end: Verdict | None = None
    reason: str = ""


@dataclass(frozen=True)
class StoredRollout:
    """A rollout as stored on disk: its folder, plan and progress."""

    folder: Path
    plan: RolloutPlan
    progress: RolloutProgress
    began: float


class Journal:
    """A rollout executed, and locked, by this process.

    Each event is on disk when the call returns. If it cannot be written, InputError is raised and
    the progress does not change.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _lock_rollout(folder)
        written = read_rollout(folder)
        self.plan, self.progress = written.plan, written.progress
        self._file = _open_after_last_line(folder / _JOURNAL)

    def bundle(self, kind: str) -> Bundle:
        """The bundle for a kind of board; TransferError if its id differs from the plan."""
        file = self.folder / _BUNDLES / f"{kind}.ekb"
        found = Bundle.read(file)
        if found.manifest.id != self.plan.releases[kind]:
            raise TransferError(
                f"{file}: expected release {self.plan.releases[kind]}, found {found.manifest.id}; "
                "start over: add --restart"
            )
        return found

    def is_stopped(self) -> bool:
        """Whether another process wants the rollout to stop, which `progress` knows from now on."""
        self.progress.stop_wanted = _stop_reason(self.folder)
        return bool(self.progress.stop_wanted)

    def note(self, event: BoardEvent) -> None:
        """Records an event of a board."""
        self._append(_Line(time.time(), event))
        self.progress.take(event)
        self.is_stopped()

    def begin(self, boards: Sequence[str], canary: bool) -> None:
        """Records the start of a batch."""
        self._append(_Line(time.time(), batch=tuple(boards), canary=canary))
        self.progress.begin(boards, canary)

    def end(self, verdict: Verdict, reason: str = "") -> None:
        """Records the end of the rollout."""
        self._append(_Line(time.time(), end=verdict, reason=reason))
        self.progress.end(verdict, reason)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def _append(self, line: _Line) -> None:
        found = {k: v for k, v in asdict(line).items() if v not in (None, "", (), False)}
        data = json.dumps(found, separators=(",", ":")).encode() + b"\n"
        try:
            size = os.fstat(self._file).st_size
            try:
                if os.write(self._file, data) != len(data):
                    raise OSError(28, os.strerror(28))
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, size)
                raise
        except OSError as error:
            raise _unwritable_error(self.folder / _JOURNAL, error) from None


def folder_of_rollouts() -> Path:
    return data_folder() / "rollouts"


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """Holds the lock that serializes the creation of rollouts."""
    path = folder_of_rollouts() / _LOCK
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable_error(path, error) from None
    with locked(path):
        yield


def write_plan(plan: RolloutPlan, bundles: Mapping[str, Bundle]) -> Path:
    """Creates the folder of a new rollout atomically. Raises InputError on failure."""
    folder = folder_of_rollouts() / plan.id
    new = folder.with_name(f".{plan.id}")
    try:
        (new / _BUNDLES).mkdir(mode=0o700, parents=True)
        for kind, bundle in bundles.items():
            bundle.write(new / _BUNDLES / f"{kind}.ekb")
        atomic_write(new / _PLAN, msgspec.json.encode(plan))
        (new / _JOURNAL).touch(mode=0o600)
        new.rename(folder)
        _fsync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise _unwritable_error(folder, error) from None
    _forget_old()
    return folder


def new_id(clock: Callable[[], float] = time.time) -> str:
    """Ids sort by time, even if the clock has gone back since the last one."""
    at = clock()
    if there := _folders():
        newest = time.strptime(there[0].name[:15], "%Y%m%d-%H%M%S")
        at = max(at, calendar.timegm(newest) + 1)
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(at)) + secrets.token_hex(2)


def rollouts() -> list[StoredRollout]:
    """All rollouts on disk, newest first."""
    return [read_rollout(path) for path in _folders()]


def newest_rollouts(most: int = 5) -> list[StoredRollout]:
    """The newest rollouts; without unreadable ones."""
    found = []
    for folder in _folders()[:most]:
        with contextlib.suppress(InputError):
            found.append(read_rollout(folder))
    return found


def want_stop(folder: Path, reason: str) -> None:
    """Lets the process that executes the rollout stop soon, with this reason."""
    atomic_write(folder / _STOP, reason[:_MOST_REASON].encode())


def _folders() -> list[Path]:
    """The folders of complete rollouts, newest first."""
    there = (p for p in folder_of_rollouts().glob("*") if _ID.fullmatch(p.name))
    return sorted((p for p in there if (p / _PLAN).exists()), reverse=True)


def find_rollout(name: str) -> StoredRollout:
    """The rollout whose id starts with `name`, or the last one for `newest`; InputError if there is
    none."""
    there = rollouts()
    if not there:
        raise InputError("expected a rollout, found none yet; start one: edgekit fleet deploy")
    found = there[:1] if name == NEWEST else [r for r in there if r.plan.id.startswith(name)]
    if len(found) != 1:
        known = ", ".join(one.plan.id for one in there[:5])
        many = f"{len(found)} that match" if found else "none"
        raise InputError(
            f"expected {NEWEST} or the id of a rollout ({known}), found {many} for '{name}'"
        )
    return found[0]


def is_carried_out(folder: Path) -> bool:
    """Whether a process is executing the rollout now."""
    try:
        os.close(take_lock(folder / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except BlockingIOError:
        return True
    return False


def read_rollout(folder: Path) -> StoredRollout:
    """Reads plan and journal; InputError if they are not valid."""
    try:
        plan = decode_json(read_file(folder / _PLAN), RolloutPlan)
        progress, began = RolloutProgress.of(plan), 0.0
        data = read_file(folder / _JOURNAL)
        for text in data[: data.rfind(b"\n") + 1].splitlines():
            line = decode_json(text, _Line)
            began = began or line.at
            _take_line(progress, line)
        progress.stop_wanted = _stop_reason(folder)
    except OSError as error:
        raise InputError(f"{folder}: expected a rollout, found: {error.strerror}") from None
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise InputError(
            f"{folder}: expected the journal of a rollout, found: {error}; move it away; "
            "ask the boards: edgekit doctor --select name=*"
        ) from None
    return StoredRollout(folder, plan, progress, began)


def _stop_reason(folder: Path) -> str:
    """Why another process wants the rollout to stop; empty if none does."""
    try:
        return read_file(folder / _STOP).decode(errors="replace")[:_MOST_REASON]
    except OSError:
        return ""


def _take_line(progress: RolloutProgress, line: _Line) -> None:
    if line.event is not None:
        progress.take(line.event)
    elif line.end is not None:
        progress.end(line.end, line.reason)
    else:
        progress.begin(line.batch, line.canary)


def _lock_rollout(folder: Path) -> int:
    try:
        return take_lock(folder / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(
            f"rollout {folder.name}: expected no other process to run it, found one on this "
            f"host; wait for it to end, or see: edgekit status --rollout {folder.name}"
        ) from None
    except OSError as error:
        raise _unwritable_error(folder, error) from None


def _open_after_last_line(path: Path) -> int:
    """Opens the journal for appending; truncates an incomplete line left by a crash."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        data = path.read_bytes()
        if (whole := data.rfind(b"\n") + 1) != len(data):
            os.ftruncate(descriptor, whole)
            os.fsync(descriptor)
    except OSError as error:
        raise _unwritable_error(path, error) from None
    return descriptor


def _forget_old() -> None:
    """Deletes old finished rollouts and incomplete ones left by a crash; boards are not
    affected."""
    for half in folder_of_rollouts().glob(".*"):
        if _ID.fullmatch(half.name[1:]):
            shutil.rmtree(half, ignore_errors=True)
    over = [one for one in rollouts() if one.progress.ended]
    for one in over[_KEPT:]:
        shutil.rmtree(one.folder, ignore_errors=True)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable_error(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: expected to write it, found: {error.strerror}; free some space there or set "
        "EDGEKIT_HOME, and run the same command again: it resumes"
    )
