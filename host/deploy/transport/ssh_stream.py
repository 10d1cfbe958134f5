"""An interactive program in its own SSH session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import paramiko

from edgekit.host.deploy.transport.base import Completed, LinkLostError
from edgekit.host.deploy.transport.ssh_command import (
    BEGIN,
    NotStartedError,
    StillRunningError,
    exit_code_of,
    marked,
)
from edgekit.host.errors import UnreachableError

_CHUNK = 1 << 17
_TICK_SECONDS = 0.25
_POLL_SECONDS = 0.01
_ERROR_BYTES = 1 << 14  # tail of standard error that is kept
_MOST_BEFORE_MARK = 1 << 16


class SshStream:
    """Implements Stream over a session whose command was started by ssh_command.start.

    `kill` kills a process group on the board, over a separate session.
    """

    def __init__(
        self, channel: Any, board: str, name: str, kill: Callable[[int | None], None]
    ) -> None:
        self._channel = channel
        self._board = board
        self._name = name
        self._kill = kill
        self._group: int | None = None
        self._early = b""  # bytes received together with the mark
        self._errors = bytearray()
        self._ended: Completed | None = None
        channel.settimeout(_TICK_SECONDS)

    def begin(self, seconds: float) -> None:
        """Waits until the program starts. Raises NotStartedError, or StillRunningError
        if a login script does not end."""
        end, seen = time.monotonic() + seconds, b""
        while (found := marked(seen)) is None:
            data = self._read(_CHUNK, end, seconds, idle=lambda: self.send(b"\n", deadline=seconds))
            seen += data
            if not data or len(seen) > _MOST_BEFORE_MARK:
                self._drain_stderr()
                code = self._exit_code(end)
                self._channel.close()
                raise NotStartedError(code, bytes(self._errors))
        self._group, self._early = found
        self.send(BEGIN, deadline=seconds)

    def send(self, data: bytes, *, deadline: float) -> None:
        end, left = time.monotonic() + deadline, memoryview(data)
        while left:
            try:
                left = left[self._channel.send(left[:_CHUNK]) :]
            except TimeoutError:
                self._in_time(end, deadline)
            except OSError:  # closed: receive and close report how
                return

    def receive(self, size: int, *, deadline: float) -> bytes:
        if self._early:
            data, self._early = self._early[:size], self._early[size:]
            return data
        return self._read(size, time.monotonic() + deadline, deadline)

    def close(self, *, deadline: float) -> Completed:
        if self._ended is None:
            end = time.monotonic() + deadline
            code = -1
            try:
                self._channel.shutdown_write()
                code = self._exit_code(end)
                if code < 0:
                    self._kill(self._group)
                self._drain_stderr()
            except (paramiko.SSHException, EOFError, OSError):
                pass  # the link is gone, and the program's input with it
            finally:
                self._channel.close()
            found = marked(bytes(self._errors))
            errors = bytes(self._errors) if found is None else found[1]
            self._ended = Completed(exit_code_of(code) if code >= 0 else -9, b"", errors)
        return self._ended

    def _read(
        self, size: int, end: float, deadline: float, idle: Callable[[], None] | None = None
    ) -> bytes:
        """`idle` is called every quarter of a second without data."""
        while True:
            self._drain_stderr()
            try:
                data: bytes = self._channel.recv(size)
            except TimeoutError:
                self._in_time(end, deadline)
                if idle is not None:
                    idle()
                continue
            if not data and not self._wait_for_exit(end):
                raise LinkLostError(
                    f"board '{self._board}': expected an answer from '{self._name}', found the "
                    "link cut; check power, cable and network"
                )
            return data

    def _wait_for_exit(self, end: float) -> bool:
        """Returns whether the session ended with an exit code: a cut link has none."""
        while not self._channel.exit_status_ready() and time.monotonic() < end:
            if self._channel.closed:
                break
            time.sleep(_POLL_SECONDS)
        return bool(self._channel.exit_status_ready() and self._channel.exit_status >= 0)

    def _exit_code(self, end: float) -> int:
        """Returns the exit code; negative if the program did not exit in time."""
        if not self._wait_for_exit(end):
            return -1
        return int(self._channel.exit_status)

    def _drain_stderr(self) -> None:
        """Reads standard error, which shares the session's window: unread, it would stall standard
        output."""
        while self._channel.recv_stderr_ready():
            data = self._channel.recv_stderr(_CHUNK)
            if not data:
                return
            self._errors += data
            del self._errors[:-_ERROR_BYTES]

    def _in_time(self, end: float, deadline: float) -> None:
        if time.monotonic() < end:
            return
        self._kill(self._group)
        self._channel.close()
        if self._group is None:
            raise StillRunningError(None)
        raise UnreachableError(
            f"board '{self._board}': expected '{self._name}' to answer within {deadline:g} s, "
            "found it still running; see what the board is doing, then try again"
        )
