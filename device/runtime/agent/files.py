"""The files of a release: found by hash, verified, and installed as a complete directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from edgekit.device.runtime.agent.integrity import find_damage, write_record
from edgekit.device.runtime.agent.manifest import MANIFEST, RUNTIME, SIGNATURE, FileEntry, Manifest
from edgekit.device.runtime.agent.store import (
    Store,
    copy_synced,
    read_manifest,
    sha256_file,
    sync_file,
    sync_folder,
)
from edgekit.device.runtime.errors import DeviceError, IncompatibleError, TransferError
from edgekit.device.runtime.record import Record

# Never hard-linked: one damaged block must not affect every runtime that could repair a release.
_COPIED = (RUNTIME,)
SPARE_BYTES = 1 << 20  # folders, notes, links, and file system overhead


class FilePlan(Record):
    """`send`: paths the board lacks; `unchanged`: the release is already running (`current`)."""

    release: str
    current: Optional[str]
    unchanged: bool
    send: Tuple[str, ...]
    disk_needed_bytes: int


def plan_files(store: Store, manifest: Manifest, repair: bool = True) -> FilePlan:
    """Finds missing files by hash; IncompatibleError if the disk has no space for them.

    Without `repair`, damaged files among those sent are kept.
    """
    current = store.links().current
    if current == manifest.id and Install(store, manifest).intact():
        return FilePlan(manifest.id, current, True, (), 0)
    found = locate(store, manifest, must=False, repair=repair)
    missing = [f for f in manifest.files if f.path not in found]
    needed = sum(f.bytes for f in missing) + SPARE_BYTES
    check_disk(store, needed)
    return FilePlan(manifest.id, current, False, tuple(f.path for f in missing), needed)


def check_disk(store: Store, needed: int) -> None:
    """IncompatibleError if the disk has less than `needed` bytes free."""
    free = store.free_bytes()
    if needed > free:
        raise IncompatibleError(
            f"expected {needed} bytes of free disk, found {free}; free some space on the board"
        )


def locate(store: Store, manifest: Manifest, must: bool, repair: bool = True) -> Dict[str, Path]:
    """Finds an intact copy of each file: among those sent, or in an installed release with the same
    content. The runtime may also come from the path to which the host uploads its own.

    With `must`, TransferError names the first file without a copy; with `repair`, a damaged file
    among those sent is deleted, so that it is sent again.
    """
    known = _installed_by_hash(store)
    sent = store.incoming / manifest.id
    found: Dict[str, Path] = {}
    for entry in manifest.files:
        installed = known.get((entry.sha256, entry.bytes), [])
        if entry.path == RUNTIME:
            installed = [*installed, *_kit_runtimes(store, entry)]
        source = next((p for p in (sent / entry.path, *installed) if _is_intact(p, entry)), None)
        if source is not None:
            found[entry.path] = source
        elif must:
            raise _damage_error(sent / entry.path, entry)
        elif repair:
            (sent / entry.path).unlink(missing_ok=True)
    return found


def reject_unlisted_files(folder: Path, manifest: Manifest) -> None:
    """TransferError if the sent folder contains a link or a file that the manifest does not
    list."""
    allowed = {MANIFEST, SIGNATURE, *(f.path for f in manifest.files)}
    folders = {str(Path(p).parent) for p in allowed}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or (name not in folders if path.is_dir() else name not in allowed):
            raise TransferError(
                f"expected only the files of the manifest, found '{name}'; "
                "build the bundle again with: edgekit compile"
            )


def clear_unfinished(folder: Path) -> None:
    """Removes leftovers of killed transports: hidden files, which no manifest lists."""
    for path in folder.rglob(".*"):
        if path.is_file() and not path.is_symlink():
            path.unlink()


class Install:
    """The directory releases/<id>, installed atomically or repaired file by file."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.folder = store.releases / manifest.id
        self.sources: Dict[str, Path] = {}
        self._store = store
        self._manifest = manifest
        self._sent = store.incoming / manifest.id

    def intact(self) -> bool:
        """Whether every file exists with the right hash."""
        return self.folder.is_dir() and not find_damage(self.folder, full=True)

    def write(self) -> None:
        """Installs `sources`: renames a temporary directory into place, or replaces single
        files."""
        if self.folder.exists():
            self._repair_files()
            return
        temporary = self._store.releases / f".new-{self._manifest.id}"
        temporary.mkdir(mode=0o700)
        try:
            for path, source in self._all_sources().items():
                _link_or_copy(source, temporary / path, path not in _COPIED)
            write_record(temporary, self._manifest)
            for folder in {p.parent for p in temporary.rglob("*")}:
                sync_folder(folder)
            temporary.rename(self.folder)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(self._store.releases)

    def _repair_files(self) -> None:
        """Repairs an installed release: atomically replaces each damaged file by a good copy, also
        in other releases, because hard-linked files are damaged in all of them."""
        for path, source in self._all_sources().items():
            if source != self.folder / path:
                _replace_file(source, self.folder / path, path)
        write_record(self.folder, self._manifest)
        known = _installed_by_hash(self._store)
        for entry in self._manifest.files:
            for twin in known[entry.sha256, entry.bytes]:
                if not _is_intact(twin, entry):
                    _replace_file(self.folder / entry.path, twin, entry.path)

    def _all_sources(self) -> Dict[str, Path]:
        """Returns files by path; the manifest and its signature are the sent ones, if any."""
        extra = {name: self._sent / name for name in (MANIFEST, SIGNATURE)}
        return {**self.sources, **{n: p for n, p in extra.items() if p.is_file()}}


def _link_or_copy(source: Path, target: Path, link: bool) -> None:
    """Creates a hard link, or a copy if required or if the file system has no links; synced to
    disk."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if link:
        try:
            os.link(source, target)
            sync_file(target)
            return
        except OSError:
            target.unlink(missing_ok=True)
    copy_synced(source, target)


def _replace_file(source: Path, target: Path, path: str) -> None:
    """Replaces an existing file; otherwise like `_link_or_copy`."""
    temporary = target.with_name("." + target.name)
    temporary.unlink(missing_ok=True)
    _link_or_copy(source, temporary, path not in _COPIED)
    temporary.replace(target)
    temporary.unlink(missing_ok=True)  # rename keeps both names if they are the same file
    sync_folder(target.parent)


def _installed_by_hash(store: Store) -> Dict[Tuple[str, int], List[Path]]:
    known: Dict[Tuple[str, int], List[Path]] = {}
    for folder in (s.releases / release for s in store.siblings() for release in s.installed()):
        try:
            files = read_manifest(folder).files
        except DeviceError:
            continue
        for f in files:
            known.setdefault((f.sha256, f.bytes), []).append(folder / f.path)
    return known


def _kit_runtimes(store: Store, entry: FileEntry) -> List[Path]:
    """Returns where the host uploads its own runtime before a release exists; usually the same
    file."""
    return [r / "runtime" / f"{entry.sha256[:16]}.pyz" for r in (store.root, store.board)]


def _is_intact(path: Path, entry: FileEntry) -> bool:
    try:
        return path.lstat().st_size == entry.bytes and sha256_file(path) == entry.sha256
    except OSError:
        return False


def _damage_error(path: Path, entry: FileEntry) -> TransferError:
    found = _describe_content(path)
    path.unlink(missing_ok=True)
    return TransferError(
        f"{entry.path}: expected {entry.bytes} bytes with SHA-256 "
        f"{entry.sha256[:16]}, found {found}; deploy again to send it again"
    )


def _describe_content(path: Path) -> str:
    try:
        return f"{path.lstat().st_size} bytes with SHA-256 {sha256_file(path)[:16]}"
    except OSError as error:
        return f"none ({error.strerror})"
