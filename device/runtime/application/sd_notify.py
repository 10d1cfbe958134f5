"""Heartbeats for the supervisor of this process, in systemd's notification protocol.

Works with edgekit's supervisor and with systemd user units. Without a supervisor it is a no-op.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import Dict, Iterator, Optional

_SHARE = 4  # heartbeats per watchdog period


def _watchdog_seconds() -> Optional[float]:
    period = os.environ.get("WATCHDOG_USEC", "")
    return int(period) / 1e6 if period.isdigit() else None


class Notifier:
    """The notification socket, and the time of the last heartbeat."""

    def __init__(self) -> None:
        name = os.environ.get("NOTIFY_SOCKET", "")
        self._socket: Optional[socket.socket] = None
        self._address = "\0" + name[1:] if name.startswith("@") else name
        if name:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        period = _watchdog_seconds()
        self._every = 60.0 if period is None else period / _SHARE
        self._next = 0.0

    def send_heartbeat(self) -> None:
        """Sends a heartbeat if one is due."""
        if self._socket is not None and time.monotonic() >= self._next:
            self._send(b"WATCHDOG=1")
            self._next = time.monotonic() + self._every

    def send_status(self, text: str) -> None:
        """Sends a status line before the heartbeat, so that the reader of the heartbeat already has
        it."""
        line = " ".join(text.split()).encode("utf-8", "replace")
        self._send(b"STATUS=" + line + b"\nWATCHDOG=1")

    def _send(self, data: bytes) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # nobody is listening any more
                self._socket.sendto(data, self._address)


_notifier = Notifier()


def alive(status: str = "") -> None:
    """Sends a heartbeat. Needed only in a program that waits without running inferences, since
    `Model.run` sends one too. `status` is a line for `edgekit app status`."""
    if status:
        _notifier.send_status(status)
    else:
        _notifier.send_heartbeat()


class Heartbeats:
    """Heartbeats of a program that serves several clients, whose other threads would keep it alive
    although an inference hangs."""

    def __init__(self) -> None:
        self._begun: Dict[int, float] = {}  # when each inference began, by its thread
        self._limit = _watchdog_seconds()

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Around an inference, which may take as long as the watchdog allows."""
        self.go_on()
        try:
            yield
        finally:
            del self._begun[threading.get_ident()]

    def go_on(self) -> None:
        """Says that this thread's inference, which has many steps, does not hang."""
        self._begun[threading.get_ident()] = time.monotonic()

    def send(self) -> None:
        """Sends a heartbeat, or ends this process if an inference hangs. SIGABRT makes Python print
        where."""
        oldest = min(self._begun.copy().values(), default=float("inf"))
        if self._limit is not None and oldest < time.monotonic() - self._limit:
            print(f"an inference did not end within {self._limit:g} s", flush=True)
            os.abort()
        alive()
