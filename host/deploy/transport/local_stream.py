"""An interactive program on this machine, with a deadline for each call."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable

from edgekit.host.deploy.transport.base import Completed
from edgekit.host.errors import UnreachableError

_CHUNK = 1 << 16
ERROR_BYTES = 1 << 14  # tail of standard error that is kept
_KILLED_SECONDS = 5.0


class LocalStream:
    """Implements Stream over a process in its own session; takes over its pipes."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        board: str,
        name: str,
        on_end: Callable[[subprocess.Popen[bytes]], None],
    ) -> None:
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._board = board
        self._name = name
        self._on_end = on_end
        self._in = process.stdin.fileno()
        self._out = process.stdout.fileno()
        self._err = process.stderr.fileno()
        self._errors = bytearray()
        self._ended: Completed | None = None
        for pipe in (self._in, self._out, self._err):
            os.set_blocking(pipe, False)
        self._reads = selectors.DefaultSelector()
        self._reads.register(self._out, selectors.EVENT_READ)
        self._reads.register(self._err, selectors.EVENT_READ)
        self._writes = selectors.DefaultSelector()
        self._writes.register(self._in, selectors.EVENT_WRITE)
        self._writes.register(self._err, selectors.EVENT_READ)

    def send(self, data: bytes, *, deadline: float) -> None:
        end = time.monotonic() + deadline
        left = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while left:
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._in, left[:_CHUNK]) :]
                    continue
                self._wait_ready(self._writes, end, deadline)

    def receive(self, size: int, *, deadline: float) -> bytes:
        end = time.monotonic() + deadline
        while True:
            with contextlib.suppress(BlockingIOError):
                return os.read(self._out, min(size, _CHUNK))
            self._wait_ready(self._reads, end, deadline)

    def close(self, *, deadline: float) -> Completed:
        if self._ended is None:
            assert self._process.stdin
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(deadline)
            if self._process.poll() is None:
                kill_group(self._process)
            code = self._process.wait(_KILLED_SECONDS)
            self._read_errors()
            self._ended = Completed(code, b"", bytes(self._errors))
            for selector in (self._reads, self._writes):
                selector.close()
            for pipe in (self._process.stdout, self._process.stderr):
                assert pipe
                pipe.close()
            self._on_end(self._process)
        return self._ended

    def _wait_ready(self, selector: selectors.BaseSelector, end: float, deadline: float) -> None:
        """Waits until a pipe is ready; collects standard error meanwhile."""
        ready = selector.select(max(end - time.monotonic(), 0))
        if not ready:
            self.close(deadline=0)
            raise UnreachableError(
                f"board '{self._board}': expected '{self._name}' to answer within {deadline:g} s, "
                "found it still running; see what the board is doing, then try again"
            )
        if any(key.fd == self._err for key, _ in ready) and not self._read_errors():
            for each in (self._reads, self._writes):
                each.unregister(self._err)

    def _read_errors(self) -> bool:
        """Returns whether more may follow."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._err, _CHUNK):
                self._errors += data
                del self._errors[:-ERROR_BYTES]
            return False
        return True


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its children immediately."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
