"""Sample user applications."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path

from edgekit.device.runtime.agent.app_folder import AppFolder, AppState
from edgekit.device.runtime.agent.store import Store
from tests.support.patience import AMPLE

UNWATCHED = "watchdog_seconds = 0"


def write_application(folder: Path, program: str, settings: str = UNWATCHED) -> Path:
    """A one-file application whose watchdog tolerates the pauses of a busy machine."""
    folder.mkdir()
    (folder / "main.py").write_text(program)
    (folder / "app.toml").write_text(settings)
    return folder


def state_of(board: Path) -> AppState:
    """The application's state, without starting a process on the board."""
    return AppFolder(Store(board)).state()


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket whose path may exceed the length limit of an address."""

    def __init__(self, path: Path) -> None:
        super().__init__("board", timeout=AMPLE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        folder = os.open(self._path.parent, os.O_PATH)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)


FORM = "multipart/form-data; boundary=x"


def form_with(**fields: bytes) -> bytes:
    """A body of the content type FORM."""
    head = 'Content-Disposition: form-data; name="{}"; filename="a"\r\n\r\n'
    parts = (b"--x\r\n" + head.format(name).encode() + data for name, data in fields.items())
    return b"\r\n".join([*parts, b"--x--\r\n"])
