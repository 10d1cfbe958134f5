"""Byte I/O on a serial port, a pty or a socket that emulates one."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import select
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

import serial

from edgekit.host.common.paths import data_folder
from edgekit.host.errors import InputError, UnreachableError

_MOST = 1 << 16
_SOCKET = re.compile(r"(socket|rfc2217)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}/?")
_WRITE_SECONDS = 10.0  # a line that accepts nothing for this long is stuck
_POLL_SECONDS = 0.01
_ADVICE = {
    "Permission denied": "join the group that owns it (often dialout) and log in again",
    "No such file": "plug the adapter in, or name another: ls /dev/ttyUSB* /dev/ttyACM*",
    "Connection refused": "start the board first: edgekit board up",
    "exclusively lock": "close the other program that uses it",
}


class LineLostError(Exception):
    """The port disappeared or no longer accepts bytes; the message says which."""


@dataclass(frozen=True)
class SerialTarget:
    """A board's console.

    `url` is a port, a pty, or a socket that emulates one: /dev/ttyUSB0, socket://127.0.0.1:4000,
    rfc2217://server:4000. pyserial's other URL schemes (files, searches) are rejected: they make no
    sense for a board, and the URL may come from someone else's project. `password` is None if the
    console asks for none.
    """

    board: str
    url: str
    baud: int = 115200
    user: str = "root"
    password: str | None = field(default=None, repr=False)


class Line:
    """An exclusively opened port. Raises UnreachableError if it cannot be opened."""

    def __init__(self, target: SerialTarget) -> None:
        self._lock = _lock_socket(target) if "://" in target.url else None
        try:
            self._port = self._open_port(target)
        except BaseException:
            self._unlock()
            raise
        try:
            self._descriptor: int | None = self._port.fileno()
        except OSError:  # such as rfc2217://, which has none
            self._descriptor = None

    @staticmethod
    def _open_port(target: SerialTarget) -> serial.SerialBase:
        try:
            _check_url(target.url)
            return serial.serial_for_url(
                target.url,
                baudrate=target.baud,
                timeout=0,
                write_timeout=_WRITE_SECONDS,
                exclusive=True,
            )
        except ValueError as error:
            raise InputError(
                f"board '{target.board}': expected a serial port such as /dev/ttyUSB0 or "
                f"socket://127.0.0.1:4000, found '{target.url}' ({error})"
            ) from None
        except OSError as error:
            raise UnreachableError(
                f"board '{target.board}': expected to open {target.url}, found: "
                f"{_reason(error)}; {_advice(str(error))}"
            ) from None

    def fileno(self) -> int | None:
        """Returns the file descriptor for select, or None if the port has none."""
        return self._descriptor

    def read(self, seconds: float) -> bytes:
        """Returns available bytes as soon as there are any; b"" after `seconds`."""
        end = time.monotonic() + seconds
        try:
            while True:
                left = end - time.monotonic()
                if self._descriptor is not None:
                    select.select([self._descriptor], [], [], max(0.0, left))
                data: bytes = self._port.read(_MOST)
                if data or left <= 0:
                    return data
                time.sleep(min(_POLL_SECONDS, left) if self._descriptor is None else 0)
        except (OSError, ValueError, TypeError) as error:  # raised by pyserial on a closed port
            raise LineLostError(_reason(error)) from None

    def write(self, data: bytes) -> None:
        """Returns when the operating system has accepted all of `data`."""
        try:
            self._port.write(data)
        except (OSError, ValueError, TypeError) as error:
            raise LineLostError(_reason(error)) from None

    def close(self) -> None:
        """Closes the port."""
        self._port.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _check_url(url: str) -> None:
    """Raises ValueError if `url` is not a port; a missing port fails later, when it is opened."""
    if _SOCKET.fullmatch(url):
        return
    if "://" in url:
        raise ValueError("not a socket:// or rfc2217:// with host and port")
    with contextlib.suppress(OSError):
        if not stat.S_ISCHR(Path(url).stat().st_mode):
            raise ValueError("not a serial port")


def _lock_socket(target: SerialTarget) -> int:
    """Locks a socket for this program, as the kernel does a port: a second client would hang
    silently.

    The lock is a file in this user's data folder; it is released at the latest when the process
    exits.
    """
    name = hashlib.sha256(target.url.encode()).hexdigest()[:16]
    folder = data_folder() / "lines"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UnreachableError(
            f"board '{target.board}': expected to open {target.url}, found that another program "
            f"uses it; {_ADVICE['exclusively lock']}"
        ) from None
    return descriptor


def _reason(error: Exception) -> str:
    """Flattens pyserial's message to one line."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(str(text).split())


def _advice(text: str) -> str:
    found = (advice for part, advice in _ADVICE.items() if part in text)
    return next(found, "check the cable and the name of the port")
