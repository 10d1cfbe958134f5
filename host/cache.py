"""Lists and cleans the cache folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.checked_files import USERS
from edgekit.host.common.files import take_lock
from edgekit.host.common.paths import cache_folder
from edgekit.host.errors import BusyError, InputError

_KINDS = {
    "boards": "images of virtual boards and what they were made of",
    "bundles": "bundles of compiled models",
    "engines": "other engines that benchmarks fetched",
    "estimates": "counts and times that estimates are made of",
    "golden": "expected outputs of models",
    "jobs": "files of work that runs in processes of its own",
    "kernels": "kernel libraries for this machine",
    "objects": "compiled kernels and models",
    "performance": "measurements of models on boards",
    "roots": "packages of other architectures, for programs whose time is estimated",
    "validation": "estimates that were compared with published times",
}


@dataclass(frozen=True)
class Cached:
    """A kind of cache entry: its folder, and the disk space it uses in bytes."""

    kind: str
    description: str
    path: Path
    files: int
    bytes: int


def cached(kinds: Iterable[str] = ()) -> list[Cached]:
    """The contents of the cache by kind, for all or the given kinds; missing ones are omitted.
    InputError for an unknown kind."""
    there = {entry.kind: entry for entry in _cached()}
    wanted = list(dict.fromkeys(kinds)) or list(there)
    if unknown := [kind for kind in wanted if kind not in there and kind not in _KINDS]:
        known = ", ".join({**there, **_KINDS})
        raise InputError(
            f"expected a kind of the cache ({known}), found '{unknown[0]}'; empty it: "
            "edgekit cache --clean"
        )
    return [there[kind] for kind in wanted if kind in there]


def _cached() -> list[Cached]:
    folder = cache_folder()
    if not folder.is_dir():
        return []
    found = []
    for path in sorted(folder.glob("[!.]*")):
        if not path.is_dir() or path.is_symlink():
            continue
        files, size = _folder_size(path)
        found.append(Cached(path.name, _KINDS.get(path.name, ""), path, files, size))
    return found


def clean(kinds: Iterable[str] = ()) -> list[Cached]:
    """Removes the given kinds, or all of them; returns what was removed.

    InputError for an unknown kind, and for the images of boards that are up; BusyError, before
    anything is removed, if a process is using one of them.
    """
    kinds = list(kinds)
    gone = cached(kinds)
    if "boards" in {*kinds, *(entry.kind for entry in gone)}:
        _refuse_running_boards()
    _remove_dying()
    with contextlib.ExitStack() as held:
        for entry in gone:
            _acquire_locks(entry, held)
        for entry in gone:
            _remove(entry.path)
    return gone


def _acquire_locks(entry: Cached, held: contextlib.ExitStack) -> None:
    """Acquires all locks in a folder, or raises BusyError."""
    for path in dict.fromkeys(
        (entry.path / USERS, *entry.path.glob("*.lock"), *entry.path.glob("locks/*"))
    ):
        try:
            how = fcntl.LOCK_EX | fcntl.LOCK_NB
            held.callback(os.close, take_lock(path, how))
        except BlockingIOError:
            raise BusyError(
                f"expected nobody to use '{entry.kind}' of the cache, found that another edgekit "
                "does; wait for it to end, then try again"
            ) from None


def _refuse_running_boards() -> None:
    from edgekit.host import virtual as boards

    if running := [state.name for state in boards.status() if state.running]:
        raise InputError(
            f"expected no virtual board to be up, found {', '.join(running)}; "
            "shut it down first: edgekit board down"
        )


def _remove(folder: Path) -> None:
    """Renames the folder before deleting it, so that others see either all of it or nothing."""
    dying = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        folder.rename(dying)
    except FileNotFoundError:
        return
    shutil.rmtree(dying)


def _remove_dying() -> None:
    """Deletes folders whose removal was interrupted."""
    for folder in cache_folder().glob(".*.*"):
        pid = folder.suffix[1:]
        if pid.isdecimal() and not _process_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass  # owned by another user
    return True


def _folder_size(folder: Path) -> tuple[int, int]:
    """Number of files in a folder and the disk space they use; links are not followed."""
    files = size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                status = (Path(root) / name).lstat()
            except OSError:
                continue  # deleted meanwhile
            files += 1
            size += status.st_blocks * 512
    return files, size
