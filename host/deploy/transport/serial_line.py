"""A serial port, a pty or a socket that stands for one: bytes in, bytes out."""

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
_WRITE_SECONDS = 10.0  # a line that takes nothing for so long is stuck
_POLL_SECONDS = 0.01
_ADVICE = {
    "Permission denied": "join the group that owns it (often dialout) and log in anew",
    "No such file": "plug the adapter in, or name another: ls /dev/ttyUSB* /dev/ttyACM*",
    "Connection refused": "start what listens there: edgekit board up",
    "exclusively lock": "close the other program that uses it",
}


class LineLostError(Exception):
    """The port went away or does not take bytes any more; the message says which."""


@dataclass(frozen=True)
class SerialTarget:
    """A board's console.

    `url` is a port, a pty, or a socket that stands for one: /dev/ttyUSB0, socket://127.0.0.1:4000,
    rfc2217://server:4000. pyserial's other ways (files, searches) are not for boards, and names
    may come from a project that somebody else wrote. `password` is None where none is asked for.
    """

    board: str
    url: str
    baud: int = 115200
    user: str = "root"
    password: str | None = field(default=None, repr=False)


class Line:
    """An open port, ours alone. Raises UnreachableError when it cannot be opened."""

    def __init__(self, target: SerialTarget) -> None:
        self._lock = _lock(target) if "://" in target.url else None
        try:
            self._port = self._open(target)
        except BaseException:
            self._unlock()
            raise
        try:
            self._descriptor: int | None = self._port.fileno()
        except OSError:  # such as rfc2217://, which has none
            self._descriptor = None

    @staticmethod
    def _open(target: SerialTarget) -> serial.SerialBase:
        try:
            _check(target.url)
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
        """The file descriptor for select; None where there is nothing to wait on."""
        return self._descriptor

    def read(self, seconds: float) -> bytes:
        """What has arrived, at once if there is something; b"" after `seconds`."""
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
        except (OSError, ValueError, TypeError) as error:  # pyserial's answers to a closed port
            raise LineLostError(_reason(error)) from None

    def write(self, data: bytes) -> None:
        """Returns when the system has taken all of `data`."""
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


def _check(url: str) -> None:
    """ValueError for what is no port; one that is not there is left to be opened in vain."""
    if _SOCKET.fullmatch(url):
        return
    if "://" in url:
        raise ValueError("not a socket:// or rfc2217:// with host and port")
    with contextlib.suppress(OSError):
        if not stat.S_ISCHR(Path(url).stat().st_mode):
            raise ValueError("not a serial port")


def _lock(target: SerialTarget) -> int:
    """Makes a socket this program's, as a port is: a second client would wait without a word.

    The lock is a file of this user's, and ends with the process at the latest.
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
    """The last part of pyserial's nested texts."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(str(text).split())


def _advice(text: str) -> str:
    found = (advice for part, advice in _ADVICE.items() if part in text)
    return next(found, "check the cable and the name of the port")
