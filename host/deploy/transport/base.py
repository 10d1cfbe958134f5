"""What every way to reach a board can do: run a command, put, get and remove files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgekit.host.errors import UnreachableError

OnBytes = Callable[[int], None]  # bytes sent or received since the last call
OnLine = Callable[[str], None]  # a line of standard error, as it arrives

# What to do about a file that cannot be written or read: SFTP servers and consoles hardly say why.
MEND = "see that it is there and that the disk is neither full nor read-only, then try again"

LARGEST_FILE = 1 << 30  # bytes that `get` fetches: more is no output of a model
LARGEST_OUTPUT = 64 << 20  # bytes of each stream that `run` listens to


def name_of(command: Sequence[str]) -> str:
    """What messages call a command: what the runtime is asked for, or the program."""
    if "--root" in command[:-2]:
        asked = command[command.index("--root") + 2 :]
        return asked[len(asked) > 1 and asked[0] == "release"]
    return command[0].rpartition("/")[2]


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


class Stream(Protocol):
    """A program on the board that runs on while bytes go in and come out.

    A call that is not through at its deadline kills the program and raises UnreachableError, a
    link that is cut LinkLostError. Calls come from one thread at a time.
    """

    def send(self, data: bytes, *, deadline: float) -> None:
        """Writes to its standard input; what an ended program does not read is lost."""

    def receive(self, size: int, *, deadline: float) -> bytes:
        """The next bytes of its standard output, `size` at most; none if it ended."""

    def close(self, *, deadline: float) -> Completed:
        """Ends its input, kills it if it does not end by then; says how it ended, with the last
        lines of its standard error. A second call answers as the first."""


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
        """Runs a program; `on_line` streams its standard error. One that writes more than
        LARGEST_OUTPUT is ended: TransferError."""

    def open(self, command: Sequence[str], *, deadline: float) -> Stream:
        """Starts a program to talk to; `deadline` is for the start alone."""

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        """Writes a file as a whole, making its folders; what is there is replaced at once."""

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        """The content of a file of at most LARGEST_FILE bytes."""

    def remove(self, path: str, *, deadline: float) -> None:
        """Removes a file, or a folder with all that is in it; nothing there is no error."""

    def close(self) -> None:
        """Ends the connection."""
