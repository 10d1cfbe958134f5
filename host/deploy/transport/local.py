"""This machine as a board: a private directory and subprocesses."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit.host.common.files import open_file
from edgekit.host.deploy.transport.base import (
    CHECK_PATH,
    LARGEST_FILE,
    LARGEST_OUTPUT,
    Completed,
    OnBytes,
    OnLine,
    cannot_run,
    name_of,
)
from edgekit.host.deploy.transport.local_stream import LocalStream, kill_group
from edgekit.host.errors import IncompatibleError, TransferError, UnreachableError

_CHUNK = 1 << 20
_KEPT = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")  # variables an interpreter may need to start


class LocalTransport:
    """Implements Transport below `root`; commands inherit only the environment variables in
    `_KEPT`.

    `root` is created for the first command or file. Until then, an interactive program starts in
    the nearest existing parent, so that a read-only query leaves nothing behind.
    """

    def __init__(self, root: Path, board: str = "local", python: str = sys.executable) -> None:
        self._root = root
        self._board = board
        self._python = python
        self._running: set[subprocess.Popen[bytes]] = set()

    @property
    def board(self) -> str:
        return self._board

    @property
    def python(self) -> str:
        return self._python

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        self._make_root()
        process = self._start_process(command, subprocess.DEVNULL)
        with process, _killed_at_exit(process):
            self._running.add(process)
            try:
                return self._collect_output(process, command, deadline, on_line)
            finally:
                self._running.discard(process)

    def open(self, command: Sequence[str], *, deadline: float) -> LocalStream:
        del deadline  # starting a process is quick or fails
        process = self._start_process(command, subprocess.PIPE)
        self._running.add(process)
        return LocalStream(process, self._board, name_of(command), self._running.discard)

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        del deadline  # a local disk responds or fails
        self._make_root()
        target = self._root / path
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        with self._file_errors(path):
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    for start in range(0, len(data), _CHUNK):
                        chunk = data[start : start + _CHUNK]
                        file.write(chunk)
                        if on_bytes:
                            on_bytes(len(chunk))
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        del deadline
        with self._file_errors(path), open_file(self._root / path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, LARGEST_FILE) + 1)  # Python allocates what it is asked for
        if len(data) > LARGEST_FILE:
            raise TransferError(
                f"board '{self._board}': {path}: expected at most {LARGEST_FILE} bytes, found "
                "more; check that file"
            )
        if on_bytes:
            on_bytes(len(data))
        return data

    def remove(self, path: str, *, deadline: float) -> None:
        del deadline
        target = self._root / path
        with self._file_errors(path):
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def close(self) -> None:
        """Kills commands that are still running; nothing else is held between calls."""
        for process in tuple(self._running):
            kill_group(process)

    def _make_root(self) -> None:
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise IncompatibleError(
                f"board '{self._board}': expected to write in {self._root}, found: "
                f"{error.strerror}; set EDGEKIT_HOME to a folder of your own"
            ) from None

    def _start_process(self, command: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
        keep = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            return subprocess.Popen(
                command,
                cwd=next(p for p in (self._root, *self._root.parents) if p.is_dir()),
                env=keep,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise cannot_run(self._board, command[0], error.strerror) from None

    def _collect_output(
        self,
        process: subprocess.Popen[bytes],
        command: Sequence[str],
        deadline: float,
        on_line: OnLine | None,
    ) -> Completed:
        """Reads both streams concurrently, so that a full pipe cannot stall the command."""
        assert process.stdout is not None
        name = name_of(command)
        assert process.stderr is not None
        errors, read_line = bytearray(), process.stderr.readline

        def listen() -> None:
            for line in iter(lambda: read_line(_CHUNK), b""):
                errors.extend(line)
                if len(errors) > LARGEST_OUTPUT:
                    kill_group(process)
                    return
                if on_line:
                    on_line(line.decode("utf-8", "replace").rstrip("\n"))

        reader = threading.Thread(target=listen)
        timer = threading.Timer(deadline, kill_group, (process,))
        timer.daemon = True
        reader.start()
        timer.start()
        try:
            stdout = process.stdout.read(LARGEST_OUTPUT + 1)
            if flooded := len(stdout) > LARGEST_OUTPUT:
                kill_group(process)
            reader.join()
            code = process.wait()
            late = not timer.is_alive()
        finally:
            timer.cancel()
            timer.join()
        if flooded or len(errors) > LARGEST_OUTPUT:
            raise TransferError(
                f"board '{self._board}': expected '{name}' to print less, found more than "
                f"{LARGEST_OUTPUT} bytes of output; see what it does there, then try again"
            )
        if late and code == -signal.SIGKILL:
            raise UnreachableError(
                f"board '{self._board}': expected '{name}' to end within {deadline:g} s, "
                "found it still running; see what the board is doing, then try again"
            )
        return Completed(code, stdout, bytes(errors))

    @contextlib.contextmanager
    def _file_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TransferError(
                f"board '{self._board}': {path}: expected to read or write it, found: "
                f"{error.strerror}; {CHECK_PATH}"
            ) from None


@contextlib.contextmanager
def _killed_at_exit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leaves no process behind when the caller is interrupted."""
    try:
        yield
    finally:
        if process.poll() is None:
            kill_group(process)
