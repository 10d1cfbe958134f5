"""The interface of all transports: run a command; put, get and remove files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgekit.host.errors import UnreachableError

OnBytes = Callable[[int], None]  # bytes sent or received since the last call
OnLine = Callable[[str], None]  # a line of standard error, as it arrives

# Advice for a file that cannot be read or written: SFTP servers and consoles rarely give a reason.
CHECK_PATH = "check that it exists and that the disk is neither full nor read-only, then try again"

LARGEST_FILE = 1 << 30  # bytes that `get` fetches: no model output is larger
LARGEST_OUTPUT = 64 << 20  # bytes that `run` accepts from each stream


def name_of(command: Sequence[str]) -> str:
    """Returns a command's name for messages: the runtime's subcommand, or the program."""
    if "--root" in command[:-2]:
        asked = command[command.index("--root") + 2 :]
        return asked[len(asked) > 1 and asked[0] == "release"]
    return command[0].rpartition("/")[2]


def cannot_run(board: str, program: str, why: object) -> UnreachableError:
    """Returns the error for a program that does not start on a board."""
    return UnreachableError(
        f"board '{board}': expected to run {program}, found: {why}; install it there, or see what "
        "the login scripts of its account do"
    )


@dataclass(frozen=True)
class Completed:
    """A finished command; a negative exit code is the signal that killed it."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class LinkLostError(UnreachableError):
    """The link was cut during a command, which may have taken effect and may still be running.

    The next call reconnects. A caller whose command is idempotent can repeat it.
    """


class Stream(Protocol):
    """A running program on the board with streamed input and output.

    A call that misses its deadline kills the program and raises UnreachableError; a cut link raises
    LinkLostError. Only one thread may make calls at a time.
    """

    def send(self, data: bytes, *, deadline: float) -> None:
        """Writes to its standard input; bytes that an exited program did not read are lost."""

    def receive(self, size: int, *, deadline: float) -> bytes:
        """Returns the next bytes of its standard output, at most `size`; empty after it has
        ended."""

    def close(self, *, deadline: float) -> Completed:
        """Closes its input, kills it if it does not exit in time, and returns its exit status.

        The status includes the last lines of standard error. A second call returns the same result.
        """


class Transport(Protocol):
    """A connection to a board. Paths are relative to its edgekit directory, where commands start.

    Every call ends within `deadline` seconds or raises UnreachableError; a file that cannot be
    written or read raises TransferError.
    """

    @property
    def board(self) -> str:
        """The board's name, for messages."""

    @property
    def python(self) -> str:
        """The board's Python interpreter."""

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        """Runs a program; `on_line` receives its standard error line by line.

        A program that writes more than LARGEST_OUTPUT is killed: TransferError.
        """

    def open(self, command: Sequence[str], *, deadline: float) -> Stream:
        """Starts an interactive program; `deadline` covers only the start."""

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        """Writes a file atomically, replacing any existing one and creating missing folders."""

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        """Returns the contents of a file of at most LARGEST_FILE bytes."""

    def remove(self, path: str, *, deadline: float) -> None:
        """Removes a file, or a folder recursively; a missing path is not an error."""

    def close(self) -> None:
        """Ends the connection."""
