"""What every way to reach a board can do: run a command, put, get and remove files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgekit.host.errors import UnreachableError

OnBytes = Callable[[int], None]  # bytes sent or received since the last call
OnLine = Callable[[str], None]  # a line of standard error, as it arrives


@dataclass(frozen=True)
class Completed:
    """A command that ended; a negative exit code is the signal that killed it."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class LinkLostError(UnreachableError):
    """The link was cut while a command ran, which may have had its effect and may still run.

    The next call connects anew. Whoever knows that the command may run twice can repeat it.
    """


class Transport(Protocol):
    """A board. Paths are relative to its edgekit directory, which commands start in.

    Every call ends within `deadline` seconds or raises UnreachableError; a file that cannot be
    written or read raises TransferError.
    """

    @property
    def board(self) -> str:
        """The name of the board, for messages."""

    @property
    def python(self) -> str:
        """The board's Python interpreter."""

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        """Runs a program; `on_line` streams its standard error."""

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        """Writes a file as a whole, making its folders; what is there is replaced at once."""

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        """The content of a file."""

    def remove(self, path: str, *, deadline: float) -> None:
        """Removes a file, or a folder with all that is in it; nothing there is no error."""

    def close(self) -> None:
        """Ends the connection."""
