"""Writing files so that they are there whole or not at all, and by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

_MODE = 0o644


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the place of `path` at once when all is written.

    The permissions of a file that is there are kept, and a link stays a link. Raises OSError and
    leaves nothing behind where that fails, or where `path` is something other than a regular
    file: a device must not be replaced.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is there and is not a regular file", str(path))
    mode = target.stat().st_mode & 0o777 if target.exists() else _MODE
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            yield cast(BinaryIO, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise


def atomic_write(path: Path, data: bytes) -> None:
    """Replaces `path` by `data` at once; as `atomic_writer`."""
    with atomic_writer(path) as file:
        file.write(data)


@contextlib.contextmanager
def locked(path: Path, shared: bool = False) -> Iterator[None]:
    """Holds a file's lock, waiting for whoever has it; it ends with the process at the latest.
    Those that hold it `shared` do so at the same time."""
    descriptor = take_lock(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def take_lock(path: Path, how: int) -> int:
    """A descriptor that has the lock until it is closed; `how` as for flock. BlockingIOError if
    another has it and `how` says not to wait."""
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
            pass  # removed while we waited, and the lock with it
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
