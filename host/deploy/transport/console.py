"""A board's serial console for people: interactive, or logged with a timestamp on each line."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from edgekit.host.deploy.transport.serial_line import Line, LineLostError, SerialTarget
from edgekit.host.errors import UnreachableError

ESCAPE = b"\x1d"  # Ctrl-]

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Captured:
    """Summary of a capture; `end` is "until", "seconds" or "interrupted"."""

    end: str
    seconds: float
    lines: int
    bytes: int


class Console:
    """An open console. Raises UnreachableError if it cannot be opened or is lost."""

    def __init__(self, target: SerialTarget) -> None:
        self._target = target
        self._line = Line(target)

    def close(self) -> None:
        """Releases the port; programs on the board's console keep running."""
        self._line.close()

    def interact(self, keyboard: int, screen: int) -> None:
        """Connects a terminal (two descriptors) to the console until Ctrl-] is typed."""
        with self._convert_line_loss(), _raw_mode(keyboard):
            while True:
                if data := self._line.read(0):
                    _write_all(screen, data)
                if keyboard in self._wait_ready(keyboard):
                    typed = os.read(keyboard, 4096)
                    before, escape, _ = typed.partition(ESCAPE)
                    self._line.write(before)
                    if escape or not typed:
                        return

    def capture(
        self,
        file: TextIO,
        *,
        seconds: float | None = None,
        until: str | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> Captured:
        """Logs incoming lines with timestamps to `file`, until a limit is reached or Ctrl-C.

        Raises UnreachableError if `until` did not appear within `seconds`.
        """
        log = _Log(file, now)
        start = time.monotonic()
        end = "interrupted"
        try:
            with self._convert_line_loss(), contextlib.suppress(KeyboardInterrupt):
                end = self._capture(log, start, seconds, until)
        finally:
            log.close()
        took = time.monotonic() - start
        if until is not None and end == "seconds":
            raise UnreachableError(
                f"board '{self._target.board}': expected {until!r} on {self._target.url} within "
                f"{seconds:g} s, found {log.last_words()}; check the baud rate and the board"
            )
        return Captured(end, took, log.lines, log.bytes)

    def _capture(self, log: _Log, start: float, seconds: float | None, until: str | None) -> str:
        while seconds is None or time.monotonic() - start < seconds:
            log.add(self._line.read(_POLL_SECONDS))
            if until is not None and log.has(until):
                return "until"
        return "seconds"

    def _wait_ready(self, keyboard: int) -> list[int]:
        """Waits for the line or the keyboard; returns the descriptors that are ready."""
        line = self._line.fileno()
        if line is None:
            return select.select([keyboard], [], [], _POLL_SECONDS)[0]
        return select.select([keyboard, line], [], [])[0]

    @contextlib.contextmanager
    def _convert_line_loss(self) -> Iterator[None]:
        try:
            yield
        except LineLostError as error:
            raise UnreachableError(
                f"board '{self._target.board}': expected the console to stay open, found "
                f"{self._target.url} lost: {error}; check the cable and the board"
            ) from None


class _Log:
    """Splits input into lines, each stamped with the time of its first byte."""

    def __init__(self, file: TextIO, now: Callable[[], datetime]) -> None:
        self.lines = 0
        self.bytes = 0
        self._file = file
        self._now = now
        self._open = b""  # the unfinished line
        self._stamp = ""
        self._recent = ""
        self._last = ""

    def add(self, data: bytes) -> None:
        self.bytes += len(data)
        for piece in data.splitlines(keepends=True):
            if not self._open.strip(b"\r"):
                self._stamp = self._now().isoformat(timespec="milliseconds")
            self._open += piece
            if piece.endswith(b"\n"):
                self._finish_line()

    def has(self, text: str) -> bool:
        """Whether `text` has arrived since the last call."""
        found = text in self._recent or text in _decode_line(self._open)
        self._recent = ""
        return found

    def last_words(self) -> str:
        return repr(self._last[-80:]) if self.lines else "silence"

    def close(self) -> None:
        if self._open.strip():
            self._finish_line()

    def _finish_line(self) -> None:
        self._last = _decode_line(self._open)
        self._recent += self._last + "\n"
        self._open = b""
        self.lines += 1
        self._file.write(f"{self._stamp} {self._last}\n")
        self._file.flush()  # for anyone watching the file


def _decode_line(line: bytes) -> str:
    return line.decode("utf-8", "replace").replace("\r", "").rstrip("\n")


@contextlib.contextmanager
def _raw_mode(terminal: int) -> Iterator[None]:
    """Raw mode: passes each key through immediately, without local handling."""
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
