"""Client for QEMU's control protocol (QMP): JSON lines over a Unix socket.

Only two commands are needed, from blocking code. The qemu.qmp package is asyncio-based and does not
monitor the process: here `alive` distinguishes a QEMU that died during startup from a slow one.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from edgekit.host.errors import EdgekitError

_POLL = 0.01  # seconds


class QmpError(EdgekitError):
    """QEMU rejected a command or does not respond."""


class Qmp:
    """A session with one QEMU; calls raise QmpError."""

    def __init__(self, path: Path, *, seconds: float, alive: Callable[[], bool]) -> None:
        """Connects, waiting up to `seconds` for QEMU to start."""
        end = time.monotonic() + seconds
        while True:
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.settimeout(seconds)
                self._socket.connect(str(path))
                break
            except OSError as error:
                self._socket.close()
                if time.monotonic() > end or not alive():
                    raise QmpError(
                        f"QEMU: expected its control socket, found: {error}; "
                        "try: edgekit board down, then up"
                    ) from None
                time.sleep(_POLL)
        self._lines = self._socket.makefile("rb")
        self._receive_answer("connect", "QMP")
        self.call("qmp_capabilities")

    def __enter__(self) -> Qmp:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session; the machine keeps running."""
        self._lines.close()
        self._socket.close()

    def call(self, command: str, **arguments: Any) -> Any:
        """Runs one command and returns QEMU's response."""
        message = {"execute": command, "arguments": arguments}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise QmpError(f"QEMU: expected it to accept '{command}', found: {error}") from None
        return self._receive_answer(command, "return")

    def send_file(self, name: str, descriptor: int) -> None:
        """Passes an open file to QEMU, for use in commands as `fd:NAME`."""
        message = {"execute": "getfd", "arguments": {"fdname": name}}
        socket.send_fds(self._socket, [json.dumps(message).encode() + b"\n"], [descriptor])
        self._receive_answer("getfd", "return")

    def monitor(self, line: str) -> str:
        """Runs a command of the human monitor, for information not available over QMP."""
        return str(self.call("human-monitor-command", **{"command-line": line}))

    def wait_status(self, command: str, wanted: tuple[str, ...], *, seconds: float) -> str:
        """Polls `command` until its status is one of `wanted`, and returns that status."""
        end = time.monotonic() + seconds
        while (status := str(self.call(command).get("status"))) not in wanted:
            if time.monotonic() > end:
                raise QmpError(
                    f"QEMU: expected '{command}' to report {' or '.join(wanted)} within "
                    f"{seconds:.0f} s, found {status}; try: edgekit board down, then up"
                )
            time.sleep(_POLL)
        return status

    def _receive_answer(self, command: str, key: str) -> Any:
        while True:
            try:
                line = self._lines.readline()
            except OSError as error:
                raise QmpError(f"QEMU: expected an answer to '{command}', found: {error}") from None
            if not line:
                raise QmpError(f"QEMU: expected an answer to '{command}', found that it ended")
            document = json.loads(line)
            if "error" in document:
                raise QmpError(
                    f"QEMU: expected it to execute '{command}', found: "
                    f"{document['error'].get('desc')}"
                )
            if key in document:
                return document[key]
