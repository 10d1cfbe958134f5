"""Atomic file writes and inter-process file locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

_MODE = 0o644


def open_file(path: Path | str, most: int | None = None) -> BinaryIO:
    """Opens a regular file for reading. OSError for anything else, because opening a FIFO waits and
    reading a device may never end, and for a file of more than `most` bytes."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: PTH123, SIM115
    found, why = os.fstat(file.fileno()), ""
    if not stat.S_ISREG(found.st_mode):
        why = "it is not a regular file"
    elif most is not None and found.st_size > most:
        why = f"it has {found.st_size} bytes, more than {most}"
    if why:
        file.close()
        raise OSError(errno.EINVAL, why, str(path))
    return file


def read_file(path: Path, most: int = 64 << 20) -> bytes:
    """Returns the content of a file; OSError like `open_file`."""
    with open_file(path, most) as file:
        return file.read(most)


@contextlib.contextmanager
def atomic_writer(path: Path, sync: Callable[[int], None] = os.fsync) -> Iterator[BinaryIO]:
    """Yields a file that atomically replaces `path` once it is completely written, and `sync` has
    made its descriptor's content durable.

    An existing file keeps its permissions, and a symbolic link stays a link. On failure raises
    OSError and leaves no temporary file. Also raises OSError if `path` is not a regular file,
    since a device must not be replaced.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it exists and is not a regular file", str(path))
    mode = target.stat().st_mode & 0o777 if target.exists() else _MODE
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            yield cast(BinaryIO, file)
            file.flush()
            sync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise


def atomic_write(path: Path, data: bytes) -> None:
    """Atomically replaces `path` with `data`; see `atomic_writer`."""
    with atomic_writer(path) as file:
        file.write(data)


def private_folder(path: Path) -> None:
    """Creates a folder that only its owner may enter; takes others' rights to an existing one."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


@contextlib.contextmanager
def locked(path: Path, shared: bool = False) -> Iterator[None]:
    """Holds a file lock, waiting until it is free; the lock is released when the process ends at
    the latest. Several `shared` holders may coexist."""
    descriptor = take_lock(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def take_lock(path: Path, how: int) -> int:
    """Returns a descriptor that holds the lock until closed; `how` as for flock. Raises
    BlockingIOError if another process holds it and `how` includes LOCK_NB."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # the folder was removed in between
        try:
            fcntl.flock(descriptor, how)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass  # the lock file was removed while we waited, so this lock is worthless
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
