"""A board with nothing but a serial console: a pty, a login, a real shell; and a line to it that
does what lines do. The line is a TCP socket, as virtual boards have it, or a pty."""

from __future__ import annotations

import contextlib
import os
import pty
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from edgekit.host.transport.serial_line import SerialTarget

USER, PASSWORD = "edge", "secret"
KERNEL = b"\r\n[   12.345678] usb 1-1: new ~ high-speed USB device number 2 ~D using xhci_hcd\r\n"


@dataclass
class Faults:
    """What the line does to the bytes; each probability is per byte and direction."""

    drop: float = 0.0
    flip: float = 0.0
    noise: float = 0.0  # a kernel message after this byte, towards the host
    seven_bits: bool = False
    bytes_per_second: float = 0.0  # 0: as fast as it goes
    cut_after: list[int] = field(
        default_factory=list
    )  # bytes towards the board, each from the last
    deaf: bool = False  # nothing comes back any more


class TtyBoard:
    """The board and its line; a context manager. `target` is for SerialTransport."""

    def __init__(
        self,
        home: Path,
        *,
        login: bool = False,
        shell: tuple[str, ...] = ("/bin/sh", "-i"),
        path: str | None = None,
        faults: Faults | None = None,
        seed: int = 1,
    ) -> None:
        self.home = home
        self.faults = faults or Faults()
        self.to_board = 0  # bytes that went over the line
        self.to_host = 0
        self.cuts = 0
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._child, self._master = self._boot(login, shell, path or os.environ["PATH"])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        """Of the line, for pyserial."""
        return f"socket://127.0.0.1:{self._server.getsockname()[1]}"

    def target(self, password: str | None = PASSWORD) -> SerialTarget:
        """The board for SerialTransport."""
        return SerialTarget("tty", self.url, user=USER, password=password)

    def __enter__(self) -> TtyBoard:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._server.close()
        os.close(self._master)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)

    def shell_answers(self) -> bool:
        """Whether someone who plugs in a terminal now finds a shell."""
        with socket.create_connection(self._server.getsockname(), timeout=5) as terminal:
            terminal.sendall(b"\recho $((6*7))-is-it\r")
            seen = b""
            with contextlib.suppress(TimeoutError):
                while b"42-is-it" not in seen:
                    seen += terminal.recv(4096)
        return b"42-is-it" in seen

    def _boot(self, login: bool, shell: tuple[str, ...], path: str) -> tuple[int, int]:
        child, master = pty.fork()
        if child:
            return child, master
        try:
            environment = {"HOME": str(self.home), "PATH": path, "TERM": "vt100", "PS1": "board$ "}
            os.chdir(self.home)
            if login:
                arguments = [sys.executable, "-ISc", _GETTY, USER, PASSWORD, *shell]
                os.execve(sys.executable, arguments, environment)
            os.execve(shell[0], list(shell), environment)
        finally:
            os._exit(127)

    def _serve(self) -> None:
        self._server.settimeout(0.1)
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError), self._accepted() as line:
                self._relay(line)

    @contextlib.contextmanager
    def _accepted(self) -> Iterator[socket.socket]:
        line, _ = self._server.accept()
        with line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield line

    def _relay(self, line: socket.socket) -> None:
        """Moves bytes both ways until one end is gone or the line is cut."""
        left = self.faults.cut_after.pop(0) if self.faults.cut_after else None
        while not self._stop.is_set():
            ready = select.select([line, self._master], [], [], 0.1)[0]
            try:
                if line in ready:
                    data = line.recv(512)
                    if not data:
                        return
                    self.to_board += len(data)
                    if left is not None:
                        left -= len(data)
                        if left <= 0:
                            self.cuts += 1
                            return
                    self._write(self._spoil(data))
                if self._master in ready:
                    data = os.read(self._master, 512)
                    self.to_host += len(data)
                    if not self.faults.deaf:
                        line.sendall(self._noise(self._spoil(data)))
            except OSError:
                return
            if ready and self.faults.bytes_per_second:
                time.sleep(len(data) / self.faults.bytes_per_second)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._master, data) :]

    def _spoil(self, data: bytes) -> bytes:
        faults = self.faults
        if faults.seven_bits:
            data = bytes(byte & 0x7F for byte in data)
        if not faults.drop and not faults.flip:
            return data
        kept = bytearray()
        for byte in data:
            if self._random.random() < faults.flip:
                byte ^= 1 << self._random.randrange(8)
            if self._random.random() >= faults.drop:
                kept.append(byte)
        return bytes(kept)

    def _noise(self, data: bytes) -> bytes:
        if not self.faults.noise:
            return data
        return b"".join(
            bytes([byte]) + (KERNEL if self._random.random() < self.faults.noise else b"")
            for byte in data
        )


# Asks as agetty and login do: the password is not echoed, a wrong one costs time.
_GETTY = r"""
import os, sys, termios, time
user, password, *shell = sys.argv[1:]

def ask(prompt, echo):
    os.write(1, prompt)
    mode = termios.tcgetattr(0)
    mode[3] = mode[3] | termios.ECHO if echo else mode[3] & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSAFLUSH if not echo else termios.TCSANOW, mode)
    return os.read(0, 4096).decode().strip()

while True:
    os.write(1, b"\r\nEdge Linux 1 tty ttyS0\r\n\r\n")
    while not (name := ask(b"edge login: ", True)):
        pass
    time.sleep(0.2)
    given = ask(b"Password: ", False)
    mode = termios.tcgetattr(0)
    mode[3] |= termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, mode)
    if (name, given) != (user, password):
        time.sleep(0.5)
        os.write(1, b"\r\nLogin incorrect\r\n")
        continue
    os.write(1, b"\r\nLast login: Mon Nov 20 01:02:03 UTC 2023 on ttyS0\r\nWelcome # to it\r\n")
    if not (child := os.fork()):
        os.execvp(shell[0], shell)
    os.waitpid(child, 0)
"""
