"""One command in an SSH session: its shell line, output and exit."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgekit.host.common.text import printable
from edgekit.host.deploy.transport.base import (
    LARGEST_OUTPUT,
    Completed,
    OnLine,
    cannot_run,
    name_of,
)
from edgekit.host.errors import EdgekitError, IncompatibleError, UnreachableError

_MARK = b"edgekit-runs:"
_NO_FOLDER, _NOT_FOUND = 125, 127
_SIGNALS = range(129, 193)
_TICK_SECONDS = 0.25
_POLL_SECONDS = 0.01
_READ = 1 << 17
_MOST_BEFORE = 1 << 20  # bytes that login scripts may print
_BUSY = "see what the board is doing, then try again"
_SCRIPTS = "begin login scripts there, as .bashrc and .profile, with: [ -t 0 ] || return 0"

# The marks report the process group, and separate login script output from the command's. sh stays
# as the parent to report which signal ended a command; its own messages about that are discarded.
# Login scripts may end in the middle of a line, as those that set the title of a terminal do.
_MARKS = "echo; echo edgekit-runs:$$; echo >&2; echo edgekit-runs:$$ >&2; "
_CREATE = 'umask 077; mkdir -p "$0" && cd "$0" || exit 125; '
# A query creates no folder; without one it starts in /proc, which is read-only.
_ENTER = (
    'if [ -e "$0" ]; then cd "$0" && folder=$(pwd -P); else cd /proc && folder=; fi || exit 125; '
)
_CHECK = 'command -v "$1" >/dev/null || exit 127; umask 077; '
_RUN = 'exec 3>&2 2>/dev/null; (exec "$@" 2>&3 3>&-); exit $?'
# A login script that reads gets empty lines; a program's input begins behind those left over.
BEGIN = b"edgekit-begins\n"
_SKIP = (
    'while :; do read -r line || { echo "its input closed by a login script" >&2; exit 1; }; '
    f'[ "$line" = {BEGIN.decode().strip()} ] && break; done; '
)
# A Python is identified by its full name (/usr/bin/python3.11); otherwise it is run, which is slow.
# The folder is printed as well, if it exists: SFTP may not start in $HOME.
_FIND_PYTHON = (
    _ENTER + _MARKS + ""
    'echo "$folder"; '
    "for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9; do "
    'p=$(command -v "$p") || continue; case $(readlink -f "$p") in '
    '*/python3.9 | */python3.[1-9][0-9]) [ -x "$p" ] && echo "$p" && exit 0;; esac; '
    '"$p" -I -S -c "import sys; sys.exit(sys.version_info < (3, 9))" 2>/dev/null && '
    'echo "$p" && exit 0; done; exit 1'
)
_WRITABLE = '[ -w . ] || { echo "$0: read-only" >&2; exit 125; }; '
_OWN = '[ ! -e "$0" ] || [ -O "$0" ] || { echo "$0: of another user" >&2; exit 125; }; '
_PREFIX_HASH = (
    "import hashlib, sys\n"
    "left, h = int(sys.argv[2]), hashlib.sha256()\n"
    "with open(sys.argv[1], 'rb') as f:\n"
    "    while left:\n"
    "        b = f.read(min(left, 1 << 20))\n"
    "        if not b: break\n"
    "        h.update(b); left -= len(b)\n"
    "print(h.hexdigest())\n"
)


class CommandChannel(Protocol):
    """The part of a paramiko session's interface that is used."""

    def exec_command(self, command: str) -> None: ...
    def shutdown_write(self) -> None: ...
    def settimeout(self, timeout: float) -> None: ...
    def recv(self, size: int) -> bytes: ...
    def recv_stderr(self, size: int) -> bytes: ...
    def exit_status_ready(self) -> bool: ...
    def recv_exit_status(self) -> int: ...
    def close(self) -> None: ...


class StillRunningError(Exception):
    """The command was still running at its deadline; `group` is its process group, if known."""

    def __init__(self, group: int | None) -> None:
        super().__init__("still running")
        self.group = group


class NoStatusError(Exception):
    """The session ended without the command's exit code."""


class FloodError(Exception):
    """The command printed more than `most` bytes; `group` is its process group, if known."""

    def __init__(self, group: int | None, most: int) -> None:
        super().__init__(f"more than {most} bytes of output")
        self.group = group


class NotStartedError(Exception):
    """The board could not start the command; the message says why. `folder`: because there is no
    folder to start it in; `missing`: because there is no such program."""

    def __init__(self, code: int, stderr: bytes) -> None:
        super().__init__(_why_not_started(code, stderr))
        self.folder = code == _NO_FOLDER
        self.missing = code == _NOT_FOUND


@dataclass(frozen=True)
class Order:
    """A command line that works in any login shell; names are for messages."""

    line: str
    program: str
    name: str


def start(root: str, command: Sequence[str], create: bool = True, reads: bool = False) -> Order:
    """Returns the order that runs `command` in the folder `root`, which it creates if asked to.
    `reads`: the command has input, which begins behind the line BEGIN."""
    enter = (_CREATE if create else _ENTER) + _own_check(root)
    script = enter + _CHECK + _MARKS + (_SKIP if reads else "") + _RUN
    return Order(_shell_line(script, root, command), command[0], name_of(command))


def find_python(root: str) -> Order:
    """Returns the order that prints the path of `root` and that of a Python 3.9 or newer.

    The first line is empty if there is no such folder; the exit code is 1 without such a Python.
    """
    return Order(_shell_line(_FIND_PYTHON, root, ()), "python3", "python3")


def make_folder(root: str) -> Order:
    """Returns the order that creates `root`, checks that it can be written, and prints its path."""
    script = _CREATE + _own_check(root) + _WRITABLE + _MARKS + "pwd -P"
    return Order(_shell_line(script, root, ()), "mkdir", "mkdir")


def _own_check(root: str) -> str:
    """Returns what ends the script in a folder of another user: outside of the home, as in
    /var/tmp, anybody may have made it."""
    return "" if root.startswith("~/") else _OWN


def kill_line(group: int) -> str:
    return f"kill -KILL -{group}"


def prefix_hash(python: str, path: str, size: int) -> list[str]:
    """Returns a command that prints the SHA-256 of the first `size` bytes of a file."""
    return [python, "-I", "-S", "-c", _PREFIX_HASH, path, str(size)]


class RemoteCommand:
    """A started command, which may print `most` bytes to each stream; `group` is its process group
    once known."""

    def __init__(
        self, channel: CommandChannel, on_line: OnLine | None, most: int = LARGEST_OUTPUT
    ) -> None:
        self._channel = channel
        self._on_line = on_line
        self._most = most
        self._stdout = _Marked(most)
        self._stderr = _Marked(most)
        self._ended = threading.Event()

    @property
    def group(self) -> int | None:
        return self._stdout.group or self._stderr.group

    def finish(self, seconds: float) -> Completed:
        """Waits for the command to exit. Raises LateError, FloodError, NoStatusError,
        NotStartedError."""
        end = time.monotonic() + seconds
        self._channel.settimeout(_TICK_SECONDS)
        reader = threading.Thread(target=self._read_errors, daemon=True)
        reader.start()
        try:
            self._read_output(end)
            while reader.is_alive() or not self._channel.exit_status_ready():
                self._check_limits(end)
                reader.join(_POLL_SECONDS)
            code = self._channel.recv_exit_status()
        finally:
            self._ended.set()
            self._channel.close()
            reader.join()
        return self._to_completed(code)

    def _to_completed(self, code: int) -> Completed:
        self._check_flood()
        if code < 0:
            raise NoStatusError("no exit code")
        stderr = bytes(self._stderr.content)
        if self.group is None:
            raise NotStartedError(code, bytes(self._stderr.raw))
        return Completed(exit_code_of(code), bytes(self._stdout.content), stderr)

    def _check_limits(self, end: float) -> None:
        self._check_flood()
        if time.monotonic() >= end:
            raise StillRunningError(self.group)

    def _check_flood(self) -> None:
        if self._stdout.flooded or self._stderr.flooded:
            raise FloodError(self.group, max(self._stdout.flooded, self._stderr.flooded))

    def _read_output(self, end: float) -> None:
        while True:
            self._check_limits(end)
            try:
                data = self._channel.recv(_READ)
            except TimeoutError:
                continue
            if not data:
                return
            self._stdout.add(data)

    def _read_errors(self) -> None:
        while not self._ended.is_set():
            try:
                data = self._channel.recv_stderr(_READ)
            except TimeoutError:
                continue
            if not data:
                break
            for line in self._stderr.add(data):
                self._emit_line(line)
        if self._stderr.rest:
            self._emit_line(bytes(self._stderr.rest))

    def _emit_line(self, line: bytes) -> None:
        if self._on_line is not None:
            self._on_line(line.decode("utf-8", "replace"))


class _Marked:
    """A stream that is ignored up to its mark, and may have `most` bytes after it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.raw = bytearray()
        self.content = bytearray()
        self.rest = bytearray()  # the unfinished line
        self.group: int | None = None
        self.flooded = 0  # the number of bytes that was too many

    def add(self, data: bytes) -> list[bytes]:
        """Adds data and returns the lines completed by it."""
        most = _MOST_BEFORE if self.group is None else self._most
        if len(self.raw) + len(self.content) + len(data) > most + _READ:
            self.flooded = most
            return []
        if self.group is None:
            self.raw += data
            found = marked(bytes(self.raw))
            if found is None:
                return []
            self.group, data = found
        self.content += data
        first, *others = data.split(b"\n")
        self.rest += first
        if not others:
            return []
        lines = [bytes(self.rest), *others[:-1]]
        self.rest = bytearray(others[-1])
        return lines


def marked(data: bytes) -> tuple[int, bytes] | None:
    """Returns the process group in the mark, and the bytes after the mark; None without a mark."""
    match = re.search(rb"^" + _MARK + rb"(\d{1,9})\n", data, re.MULTILINE)
    return None if match is None else (int(match[1]), data[match.end() :])


def exit_code_of(code: int) -> int:
    """Converts the outer shell's exit code to the command's: negative for a signal."""
    return 128 - code if code in _SIGNALS else code


def order_error(
    board: str, order: Order, seconds: float, error: NotStartedError | StillRunningError
) -> EdgekitError:
    """Returns what to raise for an order that did not start, or did not end within `seconds`."""
    if isinstance(error, StillRunningError):
        found = "no sign that it started" if error.group is None else "it still running"
        fix = f"check the network, and {_SCRIPTS}" if error.group is None else _BUSY
        return UnreachableError(
            f"board '{board}': expected '{order.name}' to end within {seconds:.3g} s, found "
            f"{found}; {fix}"
        )
    if error.folder:
        return IncompatibleError(
            f"board '{board}': expected a folder that can be written, found: {error}; make it "
            "writable, or name another, to `edgekit board add`: --folder PATH"
        )
    if error.missing:
        return cannot_run(board, order.program, error)
    return UnreachableError(
        f"board '{board}': expected to run {order.program}, found that its login shell ended "
        f"before ({error}); {_SCRIPTS}"
    )


def _why_not_started(code: int, stderr: bytes) -> str:
    if code == _NOT_FOUND:
        return "No such file or directory"
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1], 200) if lines else f"exit code {code}"


def _shell_line(script: str, root: str, arguments: Sequence[str]) -> str:
    folder = f'"$HOME"/{shlex.quote(root[2:])}' if root.startswith("~/") else shlex.quote(root)
    return f"exec sh -c {shlex.quote(script)} {folder} {shlex.join(arguments)}"
