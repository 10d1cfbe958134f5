"""Notifications from a supervised application: systemd's protocol, datagrams to NOTIFY_SOCKET.

`READY=1` and `WATCHDOG=1` report that it is alive; `STATUS=...` is a line for people.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Iterator

_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
_MOST_BYTES = 4096
_MOST_AT_ONCE = 64


class NotifySocket:
    """The socket that an application writes to, in the abstract namespace under a kernel-chosen
    name."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.setblocking(False)
        self.socket.bind("")
        name = self.socket.getsockname()
        self.name = "@" + (name if isinstance(name, bytes) else name.encode()).decode()[1:]

    def received(self) -> Iterator[str]:
        """Yields the lines received since the last call from processes of the same user; those of
        one that sends without pause in parts."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_AT_ONCE):
                data, extra, _, _ = self.socket.recvmsg(
                    _MOST_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
                if any(_is_own(kind, content) for _, kind, content in extra):
                    yield from data.decode("utf-8", "replace").splitlines()

    def close(self) -> None:
        self.socket.close()


def _is_own(kind: int, content: bytes) -> bool:
    if kind != socket.SCM_CREDENTIALS:
        return False
    return bool(_CREDENTIALS.unpack(content[: _CREDENTIALS.size])[1] == os.getuid())
