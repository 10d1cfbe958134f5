"""Files of the cache that others read from disk: each has its hash beside it.

What a crash, a full disk or a faulty one damaged is not whole any more, and is made again. Whoever
works in a folder of the cache holds its lock, so that nobody empties it meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgekit.host.common.files import locked, take_lock

WORK = "work-"  # begins the name of a folder in which something is made
USERS = "use.lock"

_READ_ONLY = (errno.EROFS, errno.EACCES)


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Makes a folder of the cache, which stays while this lasts. What killed processes left there
    unfinished goes, unless others work there."""
    with contextlib.ExitStack() as held:
        try:
            _sweep(folder)
            held.enter_context(locked(folder / USERS, shared=True))
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise  # what nobody can write nobody can empty
        yield


def _sweep(folder: Path) -> None:
    try:
        descriptor = take_lock(folder / USERS, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    try:
        for left in folder.glob(f"{WORK}*"):
            shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def scratch_of(cache: Path) -> Iterator[Path]:
    """A temporary cache that begins with what is in `cache`, in which nothing is written."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        for folder in (cache / kind for kind in ("objects", "golden")):
            own = Path(name) / folder.name
            own.mkdir()
            for file in folder.iterdir() if folder.is_dir() else ():
                if file.is_file() and file.name != USERS:
                    (own / file.name).symlink_to(file)
        yield Path(name)


def put_checked(made: Path, path: Path) -> None:
    """Moves the finished file `made` to `path`, on the same disk, with its hash beside it."""
    with made.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    _hash_file(path).unlink(missing_ok=True)  # never a hash beside what it is not of
    made.replace(path)
    _hash_file(path).write_bytes(digest.encode())  # a part of a hash is none


def is_whole(path: Path) -> bool:
    """Whether `path` is there, as it was when it was put there."""
    try:
        expected = _hash_file(path).read_bytes()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().encode() == expected
    except OSError:
        return False


def _hash_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
