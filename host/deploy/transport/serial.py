"""A board behind its serial console: no network, nothing installed but Python."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from edgekit.device.runtime.agent import messages
from edgekit.device.runtime.agent.messages import CHUNK_BYTES
from edgekit.host.deploy.transport.base import (
    CHECK_PATH,
    LARGEST_FILE,
    LARGEST_OUTPUT,
    Completed,
    LinkLostError,
    OnBytes,
    OnLine,
    cannot_run,
    name_of,
)
from edgekit.host.deploy.transport.serial_line import LineLostError, SerialTarget
from edgekit.host.deploy.transport.serial_session import (
    CancelledError,
    Exit,
    LateError,
    Ready,
    RequestFailedError,
    SerialSession,
    Whole,
    answer,
    refusal,
)
from edgekit.host.deploy.transport.serial_stream import SerialStream
from edgekit.host.errors import IncompatibleError, InputError, TransferError, UnreachableError

CONNECT_SECONDS = 60.0
_RECONNECT_SECONDS = 60.0  # for a cut line to come back
_AFTER_CUT = 0.3
_KILL_SECONDS = 2.0
_AHEAD = CHUNK_BYTES  # cap on unacknowledged bytes to the board

Answer = TypeVar("Answer")


class SerialTransport:
    """Implements Transport below `root`; the line is opened on first use.

    Files are sent in checksummed frames; after a cut, transfers resume where they stopped.
    """

    def __init__(self, target: SerialTarget, root: str = "~/.edgekit") -> None:
        self._target = target
        self._root = root
        self._held = _Held()
        self._was_cut = False
        # Release the console even if nobody calls close.
        self._finalizer = weakref.finalize(self, self._held.close)

    @property
    def board(self) -> str:
        return self._target.board

    @property
    def python(self) -> str:
        end = time.monotonic() + CONNECT_SECONDS
        with self._convert_errors("expected to find Python", CONNECT_SECONDS):
            return self._ensure_session(end).python

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        end, name = time.monotonic() + deadline, name_of(command)
        with self._convert_errors(f"expected '{name}' to end", deadline):
            session = self._ensure_session(end)
            session.send(messages.RUN, document=list(command))
            try:
                return _collect_output(session, end, on_line)
            except LineLostError as error:
                self._on_line_lost()
                raise LinkLostError(
                    f"board '{self.board}': expected '{name}' to end, found the line "
                    f"{self._target.url} lost: {error}; check the cable, then try again"
                ) from None
            except RequestFailedError as error:
                raise cannot_run(self.board, command[0], error) from None
            except LateError:
                self._kill_command(session)
                raise UnreachableError(
                    f"board '{self.board}': expected '{name}' to end within {deadline:g} s, "
                    "found it still running; see what the board is doing, then try again"
                ) from None

    def open(self, command: Sequence[str], *, deadline: float) -> SerialStream:
        end = time.monotonic() + deadline
        with self._convert_errors(f"expected '{name_of(command)}' to start", deadline):
            session = self._ensure_session(end)
            stream = SerialStream(
                session, self._held.lock, self.board, command, self._on_stream_end
            )
            self._held.stream = stream
            return stream

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        done = _Progress(len(data), on_bytes)
        request = {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

        def send(session: SerialSession, end: float) -> None:
            session.send(messages.PUT, document=request)
            there = answer(session.expect(messages.READY, end), Ready)
            offset = there["offset"]
            same = hashlib.sha256(data[:offset]).hexdigest() == there.get("sha256")
            if not same or offset > len(data):
                session.send(messages.PUT)
                offset = 0
            done.reach(offset)
            for start in range(offset, len(data), CHUNK_BYTES):
                chunk = data[start : start + CHUNK_BYTES]
                session.send(messages.DATA, chunk)
                session.drain(_AHEAD, end)
                done.reach(start + len(chunk))
            session.send(messages.DATA)
            session.expect(messages.READY, end)

        self._run_resumable(send, path, deadline, done)

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        data = bytearray()
        done = _Progress(None, on_bytes)
        identity = ""

        def fetch(session: SerialSession, end: float) -> str:
            nonlocal identity
            request = {"path": path, "offset": len(data), "identity": identity}
            session.send(messages.GET, document=request)
            there = answer(session.expect(messages.READY, end), Ready)
            identity = there.get("identity", "")
            del data[there["offset"] :]  # all of it, if the file was replaced meanwhile
            while (message := session.next(end)).kind == messages.DATA:
                data.extend(message.payload)
                if len(data) > LARGEST_FILE:
                    raise RequestFailedError(f"a file of more than {LARGEST_FILE} bytes")
                done.reach(len(data))
            if message.kind == messages.FAILED:
                raise refusal(message)
            return answer(message, Whole)["sha256"]

        sha256 = self._run_resumable(fetch, path, deadline, done)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise TransferError(
                f"board '{self.board}': {path}: expected {len(data)} bytes with SHA-256 {sha256}, "
                "found different ones; the file changed while it was read, try again"
            )
        return bytes(data)

    def remove(self, path: str, *, deadline: float) -> None:
        def ask(session: SerialSession, end: float) -> None:
            session.send(messages.REMOVE, document={"path": path})
            session.expect(messages.READY, end)

        self._run_resumable(ask, path, deadline, _Progress(None, None))

    def close(self) -> None:
        """Logs out and ends the connection; a pending call in another thread raises
        UnreachableError."""
        self._held.cancel()

    def _on_stream_end(self, good: bool) -> None:
        self._held.stream = None
        if not good:
            self._on_line_lost()

    def _ensure_session(self, end: float) -> SerialSession:
        if self._held.stream is not None:
            raise InputError(
                f"board '{self.board}': expected the line {self._target.url} to be free, found a "
                "session open on it; close that one first: a console carries only one"
            )
        if self._held.session:
            try:
                self._held.session.check(end)
            except (LineLostError, LateError):
                self._on_line_lost()
        if not self._held.session:
            connected = min(end, time.monotonic() + CONNECT_SECONDS)
            try:
                self._held.session = SerialSession(
                    self._target, self._root, connected, self._was_cut
                )
                self._was_cut = False
            except RequestFailedError as error:
                raise IncompatibleError(
                    f"board '{self.board}': expected to write in {self._root}, found: {error}; "
                    "make it writable, log in as a user who may, or name another, to `edgekit "
                    "board add`: --folder PATH"
                ) from None
        return self._held.session

    def _run_resumable(
        self,
        transfer: Callable[[SerialSession, float], Answer],
        path: str,
        deadline: float,
        done: _Progress,
    ) -> Answer:
        """Runs a resumable transfer, restarting it whenever the line is cut."""
        end = time.monotonic() + deadline
        cut_at = None
        with self._convert_errors(f"{path}: expected the transfer to finish", deadline, done):
            while True:
                try:
                    return transfer(self._ensure_session(end), end)
                except RequestFailedError as error:
                    raise TransferError(
                        f"board '{self.board}': {path}: expected to read or write it, found: "
                        f"{error}; {CHECK_PATH}"
                    ) from None
                except LineLostError:
                    self._on_line_lost()
                    cut_at = time.monotonic()
                except UnreachableError:
                    if cut_at is None or time.monotonic() > min(end, cut_at + _RECONNECT_SECONDS):
                        raise
                time.sleep(_AFTER_CUT)

    @contextlib.contextmanager
    def _convert_errors(
        self, expected: str, deadline: float, done: _Progress | None = None
    ) -> Iterator[None]:
        """Converts exceptions; after any error except a refusal, the next call starts a new
        session."""
        try:
            with self._held.lock:
                yield
        except (LineLostError, LateError, CancelledError) as error:
            self._held.close()
            found = str(error) or (done.late() if done else "no answer in that time")
            raise UnreachableError(
                f"board '{self.board}': {expected} within {deadline:g} s on {self._target.url}, "
                f"found: {found}; check the cable and the board, then try again"
            ) from None
        except (IncompatibleError, InputError, TransferError, UnreachableError):
            raise
        except BaseException:
            self._held.close()
            raise

    def _on_line_lost(self) -> None:
        self._held.close()
        self._was_cut = True

    def _kill_command(self, session: SerialSession) -> None:
        session.send(messages.KILL)
        try:
            _collect_output(session, time.monotonic() + _KILL_SECONDS, None)
        except (LateError, LineLostError, RequestFailedError):
            self._held.close()


class _Held:
    """A transport's session, which outlives the transport until it is closed."""

    def __init__(self) -> None:
        self.session: SerialSession | None = None
        self.stream: SerialStream | None = None
        self.lock = threading.RLock()  # held by the thread that uses the line

    def close(self) -> None:
        with self.lock:
            session, self.session = self.session, None
            self.stream = None
            if session:
                session.close()

    def cancel(self) -> None:
        """Closes the session even if another thread is in the middle of a call."""
        if session := self.session:
            session.cancel()
        self.close()


class _Progress:
    """Counts each byte once, regardless of line cuts; computes the rate."""

    def __init__(self, total: int | None, on_bytes: OnBytes | None) -> None:
        self._total = total
        self._on_bytes = on_bytes
        self._done = 0
        self._start = time.monotonic()

    def reach(self, position: int) -> None:
        if position > self._done:
            if self._on_bytes:
                self._on_bytes(position - self._done)
            self._done = position

    def late(self) -> str:
        """Describes the progress and the remaining time."""
        rate = self._done / max(time.monotonic() - self._start, 1e-3)
        if not self._done or not self._total:
            return f"{self._done} bytes transferred"
        minutes = (self._total - self._done) / rate / 60
        return (
            f"{self._done} of {self._total} bytes transferred at {rate / 1000:.1f} kB/s; the rest "
            f"takes about {minutes:.0f} min and resumes there when tried again"
        )


def _collect_output(session: SerialSession, end: float, on_line: OnLine | None) -> Completed:
    """Collects a command's output until it exits; standard error also line by line."""
    stdout, stderr = bytearray(), bytearray()
    shown = 0
    while (message := session.next(end)).kind != messages.EXIT:
        if message.kind == messages.FAILED:
            raise refusal(message)
        if len(stdout) + len(stderr) > LARGEST_OUTPUT:
            raise RequestFailedError(f"more than {LARGEST_OUTPUT} bytes of output")
        (stdout if message.kind == messages.OUT else stderr).extend(message.payload)
        while on_line and (newline := stderr.find(b"\n", shown)) >= 0:
            on_line(stderr[shown:newline].decode("utf-8", "replace"))
            shown = newline + 1
    if on_line and shown < len(stderr):
        on_line(stderr[shown:].decode("utf-8", "replace"))
    return Completed(answer(message, Exit)["code"], bytes(stdout), bytes(stderr))
