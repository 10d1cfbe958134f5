"""An interactive program behind a serial console; it has the line to itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from edgekit.device.runtime.agent import messages
from edgekit.device.runtime.agent.messages import CHUNK_BYTES
from edgekit.host.deploy.transport.base import Completed, LinkLostError, cannot_run, name_of
from edgekit.host.deploy.transport.serial_line import LineLostError
from edgekit.host.deploy.transport.serial_session import (
    CancelledError,
    Exit,
    LateError,
    RequestFailedError,
    SerialSession,
    answer,
    refusal,
)
from edgekit.host.errors import UnreachableError

_AHEAD = CHUNK_BYTES  # cap on unacknowledged bytes to the board
_ERROR_BYTES = 1 << 14  # tail of standard error that is kept
_PING_SECONDS = 8.0  # the board drops a host that is silent for much longer
_KILL_SECONDS = 2.0


class SerialStream:
    """Implements Stream. `lock` is held while the line is in use; `on_end` receives whether the
    line is still usable."""

    def __init__(
        self,
        session: SerialSession,
        lock: threading.RLock,
        board: str,
        command: Sequence[str],
        on_end: Callable[[bool], None],
    ) -> None:
        self._session = session
        self._lock = lock
        self._board = board
        self._program, self._name = command[0], name_of(command)
        self._on_end = on_end
        self._output = bytearray()
        self._errors = bytearray()
        self._ended: Completed | None = None
        self._over = threading.Event()
        session.send(messages.TALK, document=list(command))
        self._pinger = threading.Thread(target=self._keep_alive, daemon=True)
        self._pinger.start()

    def send(self, data: bytes, *, deadline: float) -> None:
        with self._acquire_line(deadline) as end:
            for start in range(0, len(data), CHUNK_BYTES):
                if self._ended is None:
                    self._session.send(messages.DATA, data[start : start + CHUNK_BYTES])
                    self._session.drain(_AHEAD, end)

    def receive(self, size: int, *, deadline: float) -> bytes:
        with self._acquire_line(deadline) as end:
            while not self._output and self._ended is None:
                self._receive_message(end)
            data = bytes(self._output[:size])
            del self._output[:size]
            return data

    def close(self, *, deadline: float) -> Completed:
        if self._ended is None:
            try:
                with self._acquire_line(deadline + _KILL_SECONDS):
                    self._session.send(messages.DATA)
                    self._wait_for_exit(time.monotonic() + deadline)
            except UnreachableError:
                self._set_ended(-9, good=False)
        self._over.set()
        assert self._ended is not None
        return self._ended

    def _wait_for_exit(self, end: float) -> None:
        """Waits for the program to exit; kills it if it is late."""
        try:
            while self._ended is None:
                self._receive_message(end)
        except LateError:
            self._session.send(messages.KILL)
            while self._ended is None:
                self._receive_message(time.monotonic() + _KILL_SECONDS)

    def _receive_message(self, end: float) -> None:
        message = self._session.next(end)
        if message.kind == messages.OUT:
            self._output += message.payload
        elif message.kind == messages.ERR:
            self._errors += message.payload
            del self._errors[:-_ERROR_BYTES]
        elif message.kind == messages.EXIT:
            self._set_ended(answer(message, Exit)["code"], good=True)
        elif message.kind == messages.FAILED:
            raise refusal(message)

    def _set_ended(self, code: int, good: bool) -> None:
        if self._ended is None:
            self._ended = Completed(code, b"", bytes(self._errors))
            self._over.set()
            self._on_end(good)

    @contextlib.contextmanager
    def _acquire_line(self, deadline: float) -> Iterator[float]:
        """Acquires the line for one call; yields the call's deadline."""
        try:
            with self._lock:
                yield time.monotonic() + deadline
        except RequestFailedError as error:
            self._set_ended(127, good=True)
            raise cannot_run(self._board, self._program, error) from None
        except LateError:
            self._set_ended(-9, good=False)
            raise UnreachableError(
                f"board '{self._board}': expected '{self._name}' to answer within {deadline:g} s, "
                "found it still running; see what the board is doing, then try again"
            ) from None
        except (LineLostError, CancelledError) as error:
            self._set_ended(-9, good=False)
            raise LinkLostError(
                f"board '{self._board}': expected an answer from '{self._name}', found the line "
                f"lost: {error}; check the cable, then try again"
            ) from None
        except BaseException:
            self._set_ended(-9, good=False)
            raise

    def _keep_alive(self) -> None:
        """Errors are ignored here; the next call reports them."""
        while not self._over.wait(_PING_SECONDS):
            with self._lock, contextlib.suppress(LineLostError, LateError, RequestFailedError):
                self._session.send(messages.PING)
                self._session.drain(0, time.monotonic() + _PING_SECONDS)
