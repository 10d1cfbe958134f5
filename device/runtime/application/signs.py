"""Signs of life for whoever supervises this process: systemd's protocol, as edgekit's supervisor
and user units of systemd speak it. Nobody supervising is no error."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Optional

_SHARE = 4  # signs per watchdog period


class Signs:
    """Where signs go, and when the last one went."""

    def __init__(self) -> None:
        name = os.environ.get("NOTIFY_SOCKET", "")
        self._socket: Optional[socket.socket] = None
        self._address = "\0" + name[1:] if name.startswith("@") else name
        if name:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        period = os.environ.get("WATCHDOG_USEC", "")
        self._every = int(period) / 1e6 / _SHARE if period.isdigit() else 60.0
        self._next = 0.0

    def lives(self) -> None:
        """Says so, if it is time to."""
        if self._socket is not None and time.monotonic() >= self._next:
            self._send(b"WATCHDOG=1")
            self._next = time.monotonic() + self._every

    def says(self, text: str) -> None:
        """A line for people, too; first, so that whoever hears of life knows it."""
        line = " ".join(text.split()).encode("utf-8", "replace")
        self._send(b"STATUS=" + line + b"\nWATCHDOG=1")

    def _send(self, data: bytes) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # nobody listens any more
                self._socket.sendto(data, self._address)


_signs = Signs()


def alive(status: str = "") -> None:
    """Tells the supervisor that this program is well: for one that waits where no inference runs,
    since `Model.run` does it, too. `status` is one line for `edgekit app status`."""
    if status:
        _signs.says(status)
    else:
        _signs.lives()
