"""The directory of a board's releases, and the few atomic steps that change it.

session                  held with flock from a deploy's plan to its end; see session.py
lock                     held with flock while a process changes links or releases
pending.json             the links to go back to, while a release is not yet committed
incoming/<id>/           files sent, not yet verified
releases/<id>/           complete, verified releases
current -> releases/..   the current release; swapped by rename
previous -> releases/..  the previous release
failure.json             why the last release was rolled back
counters.json            the highest counter of each model; see counters.py
watch/                   of applications; see application/watch.py
app/                     of the release's application; see app_folder.py
leftovers.json           files of hosts that may be gone; deleted if still there next time
named/<name>/            the same layout for an additional model: `deploy --name NAME`
trusted_keys, unsigned   whose releases are accepted; see signing.py
bytecode/                of the runtimes, for all models; see bytecode.py
spool/                   field profiles, of all models; see spool.py
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Optional

from edgekit.device.runtime.agent.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Manifest,
    is_release_id,
    parse_manifest,
)
from edgekit.device.runtime.agent.process import Process, is_file_of, is_locked
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.bytecode import FOLDER as BYTECODE
from edgekit.device.runtime.errors import BusyError, TransferError
from edgekit.device.runtime.record import Record

NAMED = "named"
_CHUNK = 1 << 20
_STOP_SECONDS = 5.0


class Links(Record):
    """The ids that `current` and `previous` link to; None without a link."""

    current: Optional[str]
    previous: Optional[str]


class Store:
    """Paths and atomic steps below one root; independent of a release's contents.

    `tell` receives a line about each anomaly that was repaired.
    """

    def __init__(self, root: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self.root = root
        self.tell = tell
        self.incoming = root / "incoming"
        self.releases = root / "releases"
        self.session = root / "session"
        self.lock_file = root / "lock"
        self.pending = root / "pending.json"
        self.failure = root / "failure.json"
        self.counters = root / "counters.json"
        self.leftovers = root / "leftovers.json"
        self.notes = (self.pending, self.failure, self.leftovers, self.counters)
        # A temporary store, or one of a named model, uses the board's trusted keys.
        outer = root.absolute().parent
        self.board = outer.parent if outer.name in ("temporary", NAMED) else root
        self.name = root.name if outer.name == NAMED else ""
        self.trusted_keys = self.board / "trusted_keys"
        self.unsigned = self.board / "unsigned"
        self.bytecode = self.board / BYTECODE
        self.spool = self.board / "spool"

    def create(self) -> None:
        for folder in (self.incoming, self.releases):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # without it, starts are slow but work
            self.bytecode.mkdir(mode=0o700, exist_ok=True)

    def names(self) -> List[str]:
        """Returns the names of all deployed models except the default one."""
        folders = (self.board / NAMED).glob("[!.]*")  # a dot marks one being removed
        return sorted(p.name for p in folders if (p / "current").is_symlink())

    def named(self, name: str) -> Store:
        """Returns the store of the model `name`."""
        return Store(self.board / NAMED / name, self.tell)

    def siblings(self) -> List[Store]:
        """Returns all stores of this board's releases, this one first; a temporary one is on its
        own."""
        if self.board != self.root and not self.name:
            return [self]
        others = [Store(self.board), *map(self.named, self.names())]
        return [self, *(other for other in others if other.name != self.name)]

    def free_bytes(self) -> int:
        """Returns the bytes this user may still write to the disk that holds the root."""
        import shutil  # loads compression libraries, which most starts do not need

        root = self.root.absolute()
        return shutil.disk_usage(next(p for p in (root, *root.parents) if p.exists())).free

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Allows one change at a time; BusyError names the holder. A dead holder's lock is free."""
        self.create()
        file = self.lock_file.open("a+")
        try:
            _acquire_lock(file)
            if not is_file_of(file, self.lock_file):
                raise BusyError("expected the model to stay installed, found it removed; try again")
            yield
        finally:
            with contextlib.suppress(OSError):  # the change itself is complete
                file.close()

    def stop_change(self) -> None:
        """Kills the process that holds the lock, like a power cut; waits for the lock."""
        if not is_locked(self.lock_file):
            return
        with self.lock_file.open() as file:
            holder = _read_holder(file)
        if holder is not None:
            holder.terminate()
        end = time.monotonic() + _STOP_SECONDS
        while is_locked(self.lock_file) and time.monotonic() < end:
            time.sleep(0.01)

    def links(self) -> Links:
        return Links(self._read_link("current"), self._read_link("previous"))

    def set_links(self, links: Links) -> None:
        """Sets `previous` first, so that a kill in between leaves `current` unchanged."""
        self._set_link("previous", links.previous)
        self._set_link("current", links.current)

    def manifest(self, release: str) -> Manifest:
        """Reads an installed release's manifest; TransferError if there is no such release."""
        return read_manifest(self.releases / release)

    def link_oddity(self, name: str) -> str:
        """Describes why `current` or `previous` is not a link to a release; empty if it is."""
        path = self.root / name
        if not os.path.lexists(path):
            return ""
        if not path.is_symlink():
            return "a folder" if path.is_dir() else "a file"
        target = path.readlink()
        if not self._is_release(target):
            return "one that points elsewhere"
        return "" if path.is_dir() else f"one to {target.name}, which does not exist"

    def installed(self) -> List[str]:
        if not self.releases.is_dir():
            return []
        return sorted(p.name for p in self.releases.iterdir() if is_release_id(p.name))

    def write_note(self, path: Path, note: Dict[str, Any]) -> None:
        """Replaces a small JSON file atomically."""
        write_synced(path, json.dumps(note).encode("utf-8"), self.sync)

    def read_note(self, path: Path) -> Optional[Dict[str, Any]]:
        """Reads a note, or None if there is none; an unreadable one is an error, not an absence."""
        try:
            note = json.loads(path.read_bytes())
        except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
            return None
        return note if isinstance(note, dict) else None

    def remove_note(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.sync(path.parent)

    def sync(self, folder: Path) -> None:
        """Makes renames inside `folder` durable."""
        sync_folder(folder)

    def _read_link(self, name: str) -> Optional[str]:
        try:
            target = (self.root / name).readlink()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL):
                return None
            raise
        return target.name if self._is_release(target) else None

    def _is_release(self, target: Path) -> bool:
        return is_release_id(target.name) and target == Path("releases") / target.name

    def _set_link(self, name: str, release: Optional[str]) -> None:
        if self._read_link(name) == release:
            return
        if release is None:
            (self.root / name).unlink(missing_ok=True)
        else:
            temporary = self.root / f".{name}"
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(Path("releases") / release)
            temporary.rename(self.root / name)
        self.sync(self.root)


def committed(store: Store) -> Optional[str]:
    """Returns the committed release: between activation and commit of a deploy, the previous one.

    The switch's note exists from before the link moves until the commit.
    """
    while True:
        release = store.links().current
        note = store.read_note(store.pending)
        if note is not None:
            return note.get("current")
        if store.links().current == release:
            return release


def _acquire_lock(file: IO[str]) -> None:
    """Takes the lock and records this process in it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _read_holder(file)
        who = f" (pid {holder.pid})" if holder else ""
        raise BusyError(
            f"expected no other deploy on this board, found one running{who}; "
            "wait for it to end, then try again"
        ) from None
    file.truncate(0)
    this = Process.this()
    file.write(f"{this.pid} {this.started}\n")
    file.flush()


def _read_holder(file: IO[str]) -> Optional[Process]:
    file.seek(0)
    try:
        pid, started = file.read(64).split()
        return Process(int(pid), int(started))
    except ValueError:
        return None


def read_manifest(folder: Path) -> Manifest:
    """Parses the manifest of a release folder."""
    return parse_manifest(manifest_bytes(folder))


def manifest_of(files: ReleaseFiles) -> Manifest:
    return parse_manifest(manifest_text(files))


def manifest_bytes(folder: Path) -> bytes:
    """Returns the manifest's unverified text; TransferError if it is not readable."""
    with ReleaseFiles(folder) as files:
        return manifest_text(files)


def manifest_text(files: ReleaseFiles) -> bytes:
    """Returns the manifest's text; TransferError if it is not readable."""
    try:
        with files.opened(MANIFEST) as file:
            return os.pread(file, MAX_MANIFEST_BYTES + 1, 0)
    except OSError as error:
        raise TransferError(
            f"{files.folder.name}/{MANIFEST}: expected a readable file, found {error.strerror}; "
            "deploy again"
        ) from None


def sha256_file(path: Path) -> str:
    """Returns the SHA-256 of a regular file; refuses a symbolic link."""
    with ReleaseFiles(path.parent) as files:
        return sha256_of(files.chunks(path.name))


def sha256_of(chunks: Iterable[bytes]) -> str:
    import hashlib  # loads OpenSSL, which most starts do not need

    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Makes renames inside `path` durable."""
    sync_file(path)


def write_synced(path: Path, data: bytes, sync: Callable[[Path], None] = sync_folder) -> None:
    """Replaces a small file atomically and syncs it to disk; `sync` makes the rename durable."""
    temporary = path.with_name("." + path.name)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)


def copy_synced(source: Path, target: Path) -> None:
    """Copies a file and syncs it to disk."""
    import shutil

    with source.open("rb") as reader, target.open("xb") as writer:
        shutil.copyfileobj(reader, writer, _CHUNK)
        writer.flush()
        os.fsync(writer.fileno())
