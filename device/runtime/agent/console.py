"""Serves a host over the board's console: runs commands, takes and gives files.

The host types a few lines into the console's shell that receive this program, check it and start
it. It ends when the host says so or is silent; the shell then has its terminal back.
"""

from __future__ import annotations

import contextlib
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
from edgekit.device.runtime.agent.messages import CHUNK_BYTES, BrokenStreamError, Channel, Message

SILENCE_SECONDS = 30
_QUIET_SECONDS = 0.2  # of the line, before the shell may read from it again
_AHEAD = 2 * CHUNK_BYTES  # bytes on their way to the host, above which no more are made
_KEPT = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")


class _EndedError(Exception):
    """The host is gone or does not want any more."""


class _Job:
    """What the host asked for. `take` and `step` return True when it is done."""

    pipes: Sequence[int] = ()
    sinks: Sequence[int] = ()
    poll_seconds: Optional[float] = None  # after which `step` is called in any case

    def take(self, message: Message) -> bool:
        """A message that belongs to this job."""
        raise _EndedError(f"a message that was not expected: {message.kind!r}")

    def step(self, ready: List[int]) -> bool:
        """Sends what there is to send; `ready` are those of `pipes` that can be read, and of
        `sinks` that can be written."""
        del ready
        return False

    def close(self) -> None:
        """Gives up; what is there may be continued."""

    def fail(self) -> None:
        """Gives up for good."""
        self.close()


class _Run(_Job):
    """A program; with `talks`, what the host sends is its input, until an empty message."""

    def __init__(self, channel: Channel, command: List[str], talks: bool = False) -> None:
        self._channel = channel
        self._process = subprocess.Popen(
            command,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the console's signals are not for it
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
            self._feed()
            return False
        if message.kind != messages.KILL:
            return super().take(message)
        self._kill()
        return self._exit()

    def _feed(self) -> None:
        """Writes as much as the program takes now; what an ended program does not is lost."""
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
            self._feed()
        for pipe in (pipe for pipe in self.pipes if pipe in ready):
            data = os.read(pipe, CHUNK_BYTES)
            if data:
                self._channel.send(self._streams[pipe], data)
            else:
                self.pipes = tuple(open_pipe for open_pipe in self.pipes if open_pipe != pipe)
        if self.pipes:
            return False
        self.poll_seconds = 0.05  # a program may close both and run on
        return self._process.poll() is not None and self._exit()

    def close(self) -> None:
        self._kill()
        self._end()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _exit(self) -> bool:
        self._channel.send(messages.EXIT, document={"code": self._end()})
        return True

    def _end(self) -> int:
        with self._process:  # closes the pipes and waits
            pass
        return self._process.returncode


class _Put(_Job):
    """Appends to a file of its own name, so that what is there after a cut can be continued."""

    def __init__(self, channel: Channel, request: Dict[str, Any]) -> None:
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
        if message.kind == messages.PUT:  # what is there is not the beginning of what comes
            self._file.truncate(0)
            self._hash = hashlib.sha256()
        elif message.kind == messages.DATA and message.payload:
            left = memoryview(message.payload)
            self._hash.update(left)
            while left:
                left = left[self._file.write(left) :]
        elif message.kind == messages.DATA:
            self._finish()
            return True
        else:
            return super().take(message)
        return False

    def close(self) -> None:
        self._file.close()

    def fail(self) -> None:
        self._file.close()
        self._part.unlink()  # it may be what fills the disk

    def _finish(self) -> None:
        os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()
        if (size, self._hash.hexdigest()) == (self._size, self._sha256):
            self._part.replace(self._target)
            self._channel.send(messages.READY)
        else:
            self._part.unlink()
            text = f"{size} bytes that are not those sent"
            self._channel.send(messages.FAILED, document={"found": text})


class _Get(_Job):
    def __init__(self, channel: Channel, request: Dict[str, Any]) -> None:
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
    """Serves until the host ends it. Paths and commands start from `root`."""

    def __init__(self, root: str, session: int, tty: int = 0) -> None:
        self._tty = tty
        self._channel = Channel(session, time.monotonic(), caller=False)
        self._link = self._channel.link
        self._job: Optional[_Job] = None
        with self._told():
            folder = Path(root).expanduser()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chdir(folder)
            self._channel.send(messages.READY)

    def serve(self) -> None:
        """Returns when the host ends it or is silent."""
        try:
            with _alarm():
                while not self._link.hung_up:
                    self._turn()
        except (_EndedError, BrokenStreamError):
            pass
        finally:
            if self._job:
                self._job.close()

    def _turn(self) -> None:
        if self._job:
            self._guarded_step([])
        for frame in self._link.output(time.monotonic()):
            _write(self._tty, frame)
        sources = [self._tty]
        if self._job and self._link.backlog < _AHEAD:
            sources += self._job.pipes
        sinks = self._job.sinks if self._job else ()
        readable, writable, _ = select.select(sources, sinks, [], self._patience())
        if self._tty in readable:
            readable.remove(self._tty)
            self._listen()
        if (ready := readable + writable) and self._job:
            self._guarded_step(ready)

    def _patience(self) -> Optional[float]:
        """Seconds until there is something to do even if nothing comes in."""
        wake = self._link.wake_at()
        seconds = [] if wake is None else [max(0.0, wake - time.monotonic())]
        if self._job and self._job.poll_seconds:
            seconds.append(self._job.poll_seconds)
        return min(seconds, default=None)

    def _listen(self) -> None:
        data = os.read(self._tty, 1 << 16)
        if not data:
            raise _EndedError("the terminal was closed")
        now = time.monotonic()
        for message in self._channel.receive(data, now):
            if message.kind != messages.PING:
                with self._told():
                    self._take(message)
        if self._link.heard_at == now:
            signal.alarm(SILENCE_SECONDS)

    def _take(self, message: Message) -> None:
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
            self._remove(Path(message.document()["path"]))

    def _remove(self, target: Path) -> None:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            with contextlib.suppress(FileNotFoundError):
                target.unlink()
        self._channel.send(messages.READY)

    def _guarded_step(self, ready: List[int]) -> None:
        with self._told():
            if self._job and self._job.step(ready):
                self._job = None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong with a file or a program ends the job, not the session."""
        try:
            yield
        except OSError as error:
            job, self._job = self._job, None
            if job:
                job.fail()
            self._channel.send(messages.FAILED, document={"found": error.strerror or str(error)})


def serve(root: str, session: int) -> None:
    """Serves on the terminal; then waits for the line to be quiet, lest the shell reads frames."""
    agent = Agent(root, session)
    try:
        agent.serve()
    finally:
        end = time.monotonic() + 10 * _QUIET_SECONDS
        while time.monotonic() < end and select.select([0], [], [], _QUIET_SECONDS)[0]:
            if not os.read(0, 1 << 16):
                break


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    """A signal ends even a write to a console that nobody reads."""

    def end(number: int, frame: object) -> None:
        raise _EndedError(f"signal {number}, {frame}")

    for number in (signal.SIGALRM, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, end)
    signal.alarm(SILENCE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _write(tty: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(tty, left) :]
