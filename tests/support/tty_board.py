"""A board with only a serial console: a pty, a login and a real shell, over an unreliable line.

The line is a TCP socket, as for virtual boards, or a pty.
"""

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
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from edgekit.host.deploy.transport.serial_line import SerialTarget
from tests.support.patience import PATIENCE

USER, PASSWORD = "edge", "secret"
KERNEL = b"\r\n[   12.345678] usb 1-1: new ~ high-speed USB device number 2 ~D using xhci_hcd\r\n"


@dataclass
class Faults:
    """Faults of the line; each probability is per byte and direction."""

    drop: float = 0.0
    flip: float = 0.0
    noise: float = 0.0  # probability of a kernel message after a byte, towards the host
    seven_bits: bool = False
    bytes_per_second: float = 0.0  # 0: unlimited
    cut_after: list[int] = field(
        default_factory=list
    )  # bytes sent to the board since the previous cut
    deaf: bool = False  # drop everything from the board
    gone: bool = False  # refuse connections after the next cut


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
        over_pty: bool = False,
        seed: int = 1,
    ) -> None:
        self.home = home
        self.faults = faults or Faults()
        self.to_board = 0  # bytes sent over the line
        self.to_host = 0
        self.connections = 0
        self.cuts = 0
        self.damages = 0
        self.says = b""  # sent after the board's next output
        self.output = b""  # the board's most recent output
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(0.1)
        self._pty = pty.openpty() if over_pty else None
        self._child, self._master = self._boot(login, shell, path or os.environ["PATH"])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        """The URL of the line, for pyserial."""
        if self._pty:
            return os.ttyname(self._pty[1])
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
        for descriptor in (self._master, *(self._pty or ())):
            os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)

    def shell_answers(self) -> bool:
        """Whether a newly attached terminal gets a shell."""
        return b"42-is-it" in self.types(b"\recho $((6*7))-is-it\r", b"42-is-it")

    def types(self, keys: bytes, wanted: bytes, seconds: float = 5) -> bytes:
        """Type `keys`; return what the terminal shows, up to and including `wanted`."""
        seen = b""
        with socket.create_connection(self._server.getsockname(), timeout=seconds) as terminal:
            terminal.sendall(keys)
            with contextlib.suppress(TimeoutError):
                while wanted not in seen and (data := terminal.recv(4096)):
                    seen += data
        return seen

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
        while not self._stop.is_set():
            if self._pty:
                self._relay(self._pty[0])
                continue
            with contextlib.suppress(TimeoutError):
                line, _ = self._server.accept()
                self.connections += 1
                with line:
                    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._relay(line.fileno())
            if self.faults.gone and self.cuts:
                self._server.close()
                return

    def _relay(self, line: int) -> None:
        """Copy bytes in both directions until one end closes or the line is cut."""
        left = self.faults.cut_after.pop(0) if self.faults.cut_after else None
        while not self._stop.is_set():
            try:
                moved = self._move(line)
            except OSError:
                return
            if left is not None:
                left -= moved
                if left <= 0:
                    self.cuts += 1
                    return
            if moved and self.faults.bytes_per_second:
                time.sleep(moved / self.faults.bytes_per_second)

    def _move(self, line: int) -> int:
        """Copy one chunk each way; return its byte count. Raises OSError when the line ends."""
        ready = select.select([line, self._master], [], [], 0.1)[0]
        moved = 0
        if line in ready:
            data = os.read(line, 512)
            if not data:
                raise OSError("closed")
            self.to_board += len(data)
            moved += len(data)
            _write(self._master, self._spoil(data))
        if self._master in ready:
            data = os.read(self._master, 512)
            self.to_host += len(data)
            moved += len(data)
            self.output = self.output[-1000:] + data
            data, self.says = data + self.says, b""
            if not self.faults.deaf:
                _write(line, self._noise(self._spoil(data)))
        return moved

    def _spoil(self, data: bytes) -> bytes:
        faults = self.faults
        if faults.seven_bits:
            data = bytes(byte & 0x7F for byte in data)
        if not faults.drop and not faults.flip:
            return data
        kept = bytearray()
        for byte in data:
            if self._happens(faults.flip):
                byte ^= 1 << self._random.randrange(8)
            if not self._happens(faults.drop):
                kept.append(byte)
        return bytes(kept)

    def _noise(self, data: bytes) -> bytes:
        if not self.faults.noise:
            return data
        return b"".join(
            bytes([byte]) + (KERNEL if self._happens(self.faults.noise) else b"") for byte in data
        )

    def _happens(self, probability: float) -> bool:
        happens = self._random.random() < probability
        self.damages += happens
        return happens


def ends(words: str) -> bool:
    """Wait until no process on this machine has `words` in its command line; return success."""
    end = time.monotonic() + PATIENCE
    while _runs(words) and time.monotonic() < end:
        time.sleep(0.02)
    return not _runs(words)


def _runs(words: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                return True
    return False


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


# Prompts like agetty and login: no password echo, and a delay after a wrong password.
_GETTY = r"""
import contextlib, os, sys, termios, time
user, password, *shell = sys.argv[1:]

def ask(prompt, echo):
    os.write(1, prompt)
    mode = termios.tcgetattr(0)
    mode[3] = mode[3] | termios.ECHO if echo else mode[3] & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSAFLUSH if not echo else termios.TCSANOW, mode)
    return os.read(0, 4096).decode().strip()

def session():
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
        return
    os.write(1, b"\r\nLast login: Mon Nov 20 01:02:03 UTC 2023 on ttyS0\r\nWelcome # to it\r\n")
    if not (child := os.fork()):
        os.execvp(shell[0], shell)
    os.waitpid(child, 0)

while True:
    with contextlib.suppress(KeyboardInterrupt):
        session()
"""
