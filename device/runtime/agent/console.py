"""Serves a host over the board's console: runs commands and transfers files.

The host types a few lines into the console's shell that receive, verify and start this program. It
exits when the host requests it or falls silent; the shell then regains its terminal.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from edgekit.device.runtime.agent import messages
from edgekit.device.runtime.agent.messages import (
    CHUNK_BYTES,
    BrokenStreamError,
    Message,
    MessageChannel,
)

SILENCE_SECONDS = 30
_QUIET_SECONDS = 0.2  # of an idle line, before the shell may read from it again
_AHEAD = 2 * CHUNK_BYTES  # cap on unacknowledged bytes to the host
_KEPT = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")


class _EndedError(Exception):
    """The host is gone or ended the session."""


class _Job:
    """A request of the host. `take` and `step` return True when it is complete."""

    pipes: Sequence[int] = ()
    sinks: Sequence[int] = ()
    poll_seconds: Optional[float] = None  # the longest time between calls of `step`

    def take(self, message: Message) -> bool:
        """Handles a message that belongs to this job."""
        raise _EndedError(f"an unexpected message: {message.kind!r}")

    def step(self, ready: List[int]) -> bool:
        """Sends pending data; `ready` are the readable ones of `pipes` and the writable ones of
        `sinks`."""
        del ready
        return False

    def close(self) -> None:
        """Ends the job; a partial transfer can be resumed."""

    def fail(self) -> None:
        """Ends the job; a partial transfer is discarded."""
        self.close()


class _Run(_Job):
    """Runs a program; with `talks`, messages from the host are its input, until an empty one."""

    def __init__(self, channel: MessageChannel, command: List[str], talks: bool = False) -> None:
        self._channel = channel
        self._process = subprocess.Popen(
            command,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the console's signals must not reach it
        )
        self._input = bytearray()
        self._input_ends = False
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._streams = {
            self._process.stdout.fileno(): messages.OUT,
            self._process.stderr.fileno(): messages.ERR,
        }
        self.pipes = tuple(self._streams)

    def take(self, message: Message) -> bool:
        if message.kind == messages.DATA:
            self._input += message.payload
            self._input_ends |= not message.payload
            self._feed_stdin()
            return False
        if message.kind != messages.KILL:
            return super().take(message)
        self._kill_group()
        return self._send_exit_code()

    def _feed_stdin(self) -> None:
        """Writes as much as the program accepts now; input left by an exited program is dropped."""
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            return
        try:
            while self._input:
                del self._input[: os.write(stdin.fileno(), self._input[:CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._input.clear()
            self._input_ends = True
        self.sinks = (stdin.fileno(),) if self._input else ()
        if self._input_ends and not self._input:
            stdin.close()

    def step(self, ready: List[int]) -> bool:
        if any(sink in ready for sink in self.sinks):
            self._feed_stdin()
        for pipe in (pipe for pipe in self.pipes if pipe in ready):
            data = os.read(pipe, CHUNK_BYTES)
            if data:
                self._channel.send(self._streams[pipe], data)
            else:
                self.pipes = tuple(open_pipe for open_pipe in self.pipes if open_pipe != pipe)
        if self.pipes:
            return False
        self.poll_seconds = 0.05  # a program may close both and keep running
        return self._process.poll() is not None and self._send_exit_code()

    def close(self) -> None:
        self._kill_group()
        self._reap_process()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _send_exit_code(self) -> bool:
        self._channel.send(messages.EXIT, document={"code": self._reap_process()})
        return True

    def _reap_process(self) -> int:
        with self._process:  # closes the pipes and waits
            pass
        return self._process.returncode


class _Put(_Job):
    """Appends to a uniquely named partial file, so that the transfer can be resumed after a cut."""

    def __init__(self, channel: MessageChannel, request: Dict[str, Any]) -> None:
        self._channel = channel
        self._target = Path(request["path"])
        self._size, self._sha256 = request["size"], request["sha256"]
        self._target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._part = self._target.with_name(f".{self._target.name}.{self._sha256[:16]}.part")
        self._hash = hashlib.sha256()
        self._file = self._part.open("a+b", buffering=0)
        self._part.chmod(0o600)
        self._file.seek(0)
        for data in iter(lambda: self._file.read(1 << 16), b""):
            self._hash.update(data)
        found = {"offset": self._file.tell(), "sha256": self._hash.hexdigest()}
        channel.send(messages.READY, document=found)

    def take(self, message: Message) -> bool:
        if message.kind == messages.PUT:  # the partial file is not a prefix of the new file
            self._file.truncate(0)
            self._hash = hashlib.sha256()
        elif message.kind == messages.DATA and message.payload:
            left = memoryview(message.payload)
            self._hash.update(left)
            while left:
                left = left[self._file.write(left) :]
        elif message.kind == messages.DATA:
            self._finish_file()
            return True
        else:
            return super().take(message)
        return False

    def close(self) -> None:
        self._file.close()

    def fail(self) -> None:
        self._file.close()
        self._part.unlink()  # it may be the cause of the full disk

    def _finish_file(self) -> None:
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()
        if (size, self._hash.hexdigest()) == (self._size, self._sha256):
            self._part.replace(self._target)
            self._channel.send(messages.READY)
        else:
            self._part.unlink()
            text = f"{size} bytes that differ from those sent"
            self._channel.send(messages.FAILED, document={"found": text})


class _Get(_Job):
    def __init__(self, channel: MessageChannel, request: Dict[str, Any]) -> None:
        self._channel = channel
        self._file = Path(request["path"]).open("rb", buffering=0)  # noqa: SIM115, see close
        self._hash = hashlib.sha256()
        about = os.fstat(self._file.fileno())
        identity = f"{about.st_dev}:{about.st_ino}:{about.st_size}:{about.st_mtime_ns}"
        left = request["offset"] if identity == request["identity"] else 0
        while left:
            data = self._file.read(min(left, 1 << 16))
            self._hash.update(data)
            left -= len(data) or left
        found = {"identity": identity, "offset": self._file.tell()}
        channel.send(messages.READY, document=found)

    def step(self, ready: List[int]) -> bool:
        del ready
        while self._channel.link.backlog < _AHEAD:
            data = self._file.read(CHUNK_BYTES)
            if not data:
                self._file.close()
                found = {"sha256": self._hash.hexdigest()}
                self._channel.send(messages.READY, document=found)
                return True
            self._hash.update(data)
            self._channel.send(messages.DATA, data)
        return False

    def close(self) -> None:
        self._file.close()


class Agent:
    """Serves until the host ends the session. Paths and commands are relative to `root`."""

    def __init__(self, root: str, session: int, tty: int = 0) -> None:
        self._tty = tty
        self._channel = MessageChannel(session, time.monotonic(), caller=False)
        self._link = self._channel.link
        self._job: Optional[_Job] = None
        with self._report_errors():
            folder = Path(root).expanduser()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chdir(folder)
            if not root.startswith("~") and Path().stat().st_uid != os.geteuid():
                raise PermissionError(errno.EACCES, "it belongs to another user")
            self._channel.send(messages.READY)

    def serve(self) -> None:
        """Returns when the host ends the session or falls silent."""
        try:
            with _raise_on_signals():
                while not self._link.hung_up:
                    self._poll_once()
        except (_EndedError, BrokenStreamError):
            pass
        finally:
            if self._job:
                self._job.close()

    def _poll_once(self) -> None:
        if self._job:
            self._guarded_step([])
        for frame in self._link.output(time.monotonic()):
            _write_all(self._tty, frame)
        sources = [self._tty]
        if self._job and self._link.backlog < _AHEAD:
            sources += self._job.pipes
        sinks = self._job.sinks if self._job else ()
        readable, writable, _ = select.select(sources, sinks, [], self._select_timeout())
        if self._tty in readable:
            readable.remove(self._tty)
            self._receive_messages()
        if (ready := readable + writable) and self._job:
            self._guarded_step(ready)

    def _select_timeout(self) -> Optional[float]:
        """Returns the seconds until the next timed action, or None."""
        wake = self._link.wake_at()
        seconds = [] if wake is None else [max(0.0, wake - time.monotonic())]
        if self._job and self._job.poll_seconds:
            seconds.append(self._job.poll_seconds)
        return min(seconds, default=None)

    def _receive_messages(self) -> None:
        data = os.read(self._tty, 1 << 16)
        if not data:
            raise _EndedError("the terminal was closed")
        now = time.monotonic()
        for message in self._channel.receive(data, now):
            if message.kind != messages.PING:
                with self._report_errors():
                    self._handle_message(message)
        if self._link.heard_at == now:
            signal.alarm(SILENCE_SECONDS)

    def _handle_message(self, message: Message) -> None:
        if self._job:
            if self._job.take(message):
                self._job = None
        elif message.kind == messages.RUN:
            self._job = _Run(self._channel, json.loads(message.payload))
        elif message.kind == messages.TALK:
            self._job = _Run(self._channel, json.loads(message.payload), talks=True)
        elif message.kind == messages.PUT:
            self._job = _Put(self._channel, message.document())
        elif message.kind == messages.GET:
            self._job = _Get(self._channel, message.document())
        elif message.kind == messages.REMOVE:
            self._remove_path(Path(message.document()["path"]))

    def _remove_path(self, target: Path) -> None:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            with contextlib.suppress(FileNotFoundError):
                target.unlink()
        self._channel.send(messages.READY)

    def _guarded_step(self, ready: List[int]) -> None:
        with self._report_errors():
            if self._job and self._job.step(ready):
                self._job = None

    @contextlib.contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Ends the job on a file or program error, but not the session."""
        try:
            yield
        except OSError as error:
            job, self._job = self._job, None
            if job:
                job.fail()
            self._channel.send(messages.FAILED, document={"found": error.strerror or str(error)})


def serve(root: str, session: int) -> None:
    """Serves on the terminal; then waits for an idle line, so that the shell does not read
    frames."""
    agent = Agent(root, session)
    try:
        agent.serve()
    finally:
        end = time.monotonic() + 10 * _QUIET_SECONDS
        while time.monotonic() < end and select.select([0], [], [], _QUIET_SECONDS)[0]:
            if not os.read(0, 1 << 16):
                break


@contextlib.contextmanager
def _raise_on_signals() -> Iterator[None]:
    """A signal interrupts even a write to a console that nobody reads."""

    def end(number: int, frame: object) -> None:
        raise _EndedError(f"signal {number}, {frame}")

    for number in (signal.SIGALRM, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, end)
    signal.alarm(SILENCE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _write_all(tty: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(tty, left) :]
