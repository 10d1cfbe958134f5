"""Cache files that other programs read from disk, each with its hash in a sibling file.

A file damaged by a crash, a full disk or a failing one no longer matches its hash and is rebuilt.
Code that works in a cache folder holds that folder's lock, so that nobody empties it meanwhile.
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

WORK = "work-"  # prefix of temporary build folders
USERS = "use.lock"
_BEHIND = "behind"  # link in a scratch folder to the one that it stands for

_READ_ONLY = (errno.EROFS, errno.EACCES)


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Creates a cache folder and keeps it from being removed for the duration. Deletes unfinished
    work of killed processes, unless other processes are using the folder."""
    with contextlib.ExitStack() as held:
        try:
            _remove_unused(folder)
            held.enter_context(locked(folder / USERS, shared=True))
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise  # a read-only folder cannot be emptied by anybody
        yield


def _remove_unused(folder: Path) -> None:
    try:
        descriptor = take_lock(folder / USERS, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    try:
        with os.scandir(folder) as entries:  # a tenth of what Path.glob takes
            left = [entry.path for entry in entries if entry.name.startswith(WORK)]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def scratch_of(cache: Path) -> Iterator[Path]:
    """A temporary cache in which `is_intact` also finds the files of `cache`, which itself is never
    written."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        for folder in (cache / kind for kind in ("objects", "golden")):
            own = Path(name) / folder.name
            own.mkdir()
            (own / _BEHIND).symlink_to(folder.absolute())
        yield Path(name)


def put_checked(made: Path, path: Path) -> None:
    """Moves the finished file `made` to `path` on the same disk and stores its hash alongside."""
    with made.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    _hash_file(path).unlink(missing_ok=True)  # never leave a hash next to different content
    made.replace(path)
    _hash_file(path).write_bytes(digest.encode())  # a truncated hash never matches


def is_intact(path: Path) -> bool:
    """Whether `path` exists and still has the content that was put there. In a `scratch_of` a
    cache, a file of that cache is linked first."""
    if not path.exists():
        _link_from_behind(path)
    try:
        expected = _hash_file(path).read_bytes()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().encode() == expected
    except OSError:
        return False


def _link_from_behind(path: Path) -> None:
    behind = path.parent / _BEHIND
    if (behind / path.name).is_file():
        for own in (path, _hash_file(path)):
            with contextlib.suppress(FileExistsError):  # another thread's
                own.symlink_to(behind.resolve() / own.name)


def _hash_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
