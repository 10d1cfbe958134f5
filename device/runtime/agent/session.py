"""Serializes deploys, each from its first question to its commit, though every step is a process.

The lock is a flock on the file `session`. Between the steps a small process on the board holds it:
until the deploy ends, until another deploy of the same host takes over, or until nothing has
arrived for a while, which means that the host is gone. Killing the holder releases the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO, Callable, Iterator, Optional, Tuple

from edgekit.device.runtime.agent.process import Process, is_file_of, is_locked
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import BusyError
from edgekit.device.runtime.record import Record, asdict

IDLE_SECONDS = 20.0
_POLL_SECONDS = 0.5
_TAKE_OVER_SECONDS = 5.0
_SIGN_SECONDS = 2.0
_COMMAND = "a command on the board"
_COMMAND_SECONDS = 10.0


class Holder(Record):
    """The deploy that holds the lock: `token` identifies it, `owner` is for people to read."""

    token: str
    owner: str
    process: Process


class DeploySession:
    """The right to deploy, held by this process or by a holder process for the same deploy.

    `command_seconds` limits the wait for a command that holds the lock; `sleep` waits for seconds.
    """

    def __init__(
        self,
        store: Store,
        token: str,
        owner: str,
        *,
        command_seconds: float = _COMMAND_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._token = token
        self._owner = owner
        self._command_seconds = command_seconds
        self._sleep = sleep
        self._file: Optional[IO[str]] = None

    def enter(self, take_over: str = "") -> None:
        """Takes the lock, or joins if this deploy holds it; BusyError names the other deploy.

        `take_over` is the token of a deploy that the caller knows to be over.
        """
        self._store.create()
        self._store.session.touch(mode=0o600)
        file = self._store.session.open("r+", encoding="utf-8")
        try:
            if not _try_lock(file) and not self._outlasts_a_command(file):
                holder = _read_living(file, self._sleep)
                if holder is not None and holder.token == self._token:
                    file.close()
                    return
                if holder is None or holder.token != take_over:
                    raise _busy_error(holder)
                self._store.stop_change()  # of the finished deploy, should it still be running
                if not _terminate_holder(holder, file, self._sleep):
                    raise _busy_error(holder)
        except BaseException:
            file.close()
            raise
        if not is_file_of(file, self._store.session):  # the model was removed meanwhile
            file.close()
            self.enter(take_over)
            return
        self._file = file
        self._write_holder()

    def keep(self, release: str, idle_seconds: float = IDLE_SECONDS) -> None:
        """Starts a separate process that holds the lock after this one has exited."""
        if self._file is None:
            return
        ready, say_ready = os.pipe()
        if os.fork() == 0:
            try:
                _daemonize()
                self._write_holder()
                os.write(say_ready, b"!")
                _wait_for_silence(self._store, release, idle_seconds)
            finally:
                os._exit(0)
        os.close(say_ready)
        os.read(ready, 1)
        os.close(ready)
        self._file.close()
        self._file = None

    def end(self) -> None:
        """Releases the lock, whichever process holds it for this deploy."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None
            return
        with contextlib.suppress(FileNotFoundError), self._store.session.open("r+") as file:
            holder = _read_holder(file)
            if holder is None or holder.token != self._token:
                return
            if _terminate_holder(holder, file, self._sleep):
                file.truncate(0)

    def abandon(self) -> None:
        """Ends the deploy immediately, including a step that may be running on the board."""
        if self._is_mine():
            self._store.stop_change()
        self.end()

    def _outlasts_a_command(self, file: IO[str]) -> bool:
        """Waits a while for the lock if a command holds it; returns whether it was acquired. A
        command, such as the rollback of a killed host, takes moments, and users should not have to
        retry for that."""
        end = time.monotonic() + self._command_seconds
        while time.monotonic() < end:
            holder = _read_living(file, self._sleep)
            if _try_lock(file):
                return True
            if holder is None or holder.owner != _COMMAND:
                return False
            self._sleep(0.05)
        return False

    def _is_mine(self) -> bool:
        with contextlib.suppress(FileNotFoundError), self._store.session.open() as file:
            holder = _read_holder(file)
            return holder is not None and holder.token == self._token
        return False

    def _write_holder(self) -> None:
        assert self._file is not None
        holder = Holder(self._token, self._owner, Process.this())
        self._file.seek(0)
        self._file.write(json.dumps(asdict(holder)))
        self._file.truncate()
        self._file.flush()


@contextlib.contextmanager
def alone(store: Store, session: Optional[DeploySession] = None) -> Iterator[None]:
    """Keeps out other deploys; without a deploy's `session`, uses one for this process.

    BusyError if another deploy is in progress. The session ends with the block.
    """
    session = session or DeploySession(store, os.urandom(8).hex(), _COMMAND)
    session.enter()
    try:
        yield
    finally:
        # Process exit releases the lock as well, so do not fail after a commit.
        with contextlib.suppress(OSError):
            session.end()


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(file: IO[str]) -> Optional[Holder]:
    file.seek(0)
    try:
        note = json.loads(file.read(4096))
        return Holder(note["token"], note["owner"], Process(**note["process"]))
    except (ValueError, TypeError, KeyError):
        return None


def _read_living(file: IO[str], sleep: Callable[[float], None]) -> Optional[Holder]:
    """Returns the lock's holder; retries, because the file may briefly name the previous one."""
    end = time.monotonic() + _SIGN_SECONDS
    while time.monotonic() < end:
        holder = _read_holder(file)
        if holder is not None and holder.process.lives():
            return holder
        sleep(0.01)
    return None


def _busy_error(holder: Optional[Holder]) -> BusyError:
    who = f" by {holder.owner} (process {holder.process.pid} on the board)" if holder else ""
    return BusyError(
        f"expected no other deploy on this board, found one running{who}; "
        "wait for it to end, then try again",
        holder=holder.token if holder else "",
    )


def _terminate_holder(holder: Holder, file: IO[str], sleep: Callable[[float], None]) -> bool:
    """Ends the process that holds the lock; returns whether this process acquired it."""
    holder.process.terminate()
    end = time.monotonic() + _TAKE_OVER_SECONDS
    while not _try_lock(file):
        if time.monotonic() > end:
            return False
        sleep(0.01)
    return True


def _daemonize() -> None:
    """Detaches from the caller's session and pipes."""
    os.setsid()
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _wait_for_silence(store: Store, release: str, idle_seconds: float) -> None:
    """Returns when nothing has been sent and no step has run for a while."""
    seen, quiet_since = _list_received(store.incoming / release), time.monotonic()
    while time.monotonic() - quiet_since < idle_seconds:
        time.sleep(_POLL_SECONDS)
        now = _list_received(store.incoming / release)
        if now != seen or is_locked(store.lock_file):
            seen, quiet_since = now, time.monotonic()


def _list_received(folder: Path) -> Tuple[Tuple[str, int, int], ...]:
    """Returns names, sizes and times of the files sent so far; changes during a transfer."""
    rows = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            stat = path.lstat()
            rows.append((str(path), stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(rows))
