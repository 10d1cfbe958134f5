"""Reads and writes .ekb files; validates all untrusted bundle bytes here."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import struct
import threading
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    SIGNATURE,
    FileEntry,
    Manifest,
    parse_manifest,
)
from edgekit.device.runtime.agent.signing import MAX_SIGNATURE_BYTES
from edgekit.device.runtime.errors import InputError as ManifestError
from edgekit.host.common.content import Content
from edgekit.host.common.files import atomic_writer, open_file
from edgekit.host.deploy.bundle.archive import archive_bytes, open_archive, write_archive
from edgekit.host.errors import InputError

_CHUNK = 1 << 20
_DAMAGED = (
    zipfile.BadZipFile,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    OverflowError,
    struct.error,
)


@dataclass(frozen=True)
class Bundle:
    """A manifest and the bytes of its files, whose sizes and hashes have been checked.

    `signature` is the detached signature of the manifest; empty if unsigned.
    """

    manifest: Manifest
    files: Mapping[str, Content]
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        """Returns the .ekb file, identical for identical content on every machine."""
        return archive_bytes(self._archive_entries())

    def write(self, path: Path) -> None:
        """Writes the file atomically; InputError if it cannot be written."""
        try:
            with atomic_writer(path) as file:
                write_archive(file, self._archive_entries())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise InputError(
                    f"{path}: expected a file to write, found: {error.strerror}; write elsewhere "
                    "with -o"
                ) from None
            room = sum(entry.bytes for entry in self.manifest.files)
            raise InputError(
                f"{path}: expected {room} bytes of free disk, found: {error.strerror}; free some "
                "space or write elsewhere with -o"
            ) from None

    @staticmethod
    def read(path: Path) -> Bundle:
        """Reads the bundle at `path`; InputError if anything disagrees with the manifest.

        Every file is hashed here in chunks; contents are read on demand.
        """
        with _named_errors(path):
            return _read(path)

    def _archive_entries(self) -> Iterator[tuple[str, Content]]:
        yield MANIFEST, self.manifest.to_json()
        if self.signature:
            yield SIGNATURE, self.signature
        for name in sorted(self.files):
            yield name, self.files[name]


class _Files(Mapping[str, bytes]):
    """The files of an open archive, read and checked again on each access."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self._path = path
        self._archive = archive
        if archive.fp is not None:
            weakref.finalize(self, archive.fp.close)
        self._entries = {entry.path: entry for entry in manifest.files}
        self._one_at_a_time = threading.Lock()

    def __getitem__(self, name: str) -> bytes:
        entry = self._entries[name]
        with self._one_at_a_time, _named_errors(self._path):
            data = self._archive.read(name)
            _check_entry(entry, len(data), hashlib.sha256(data).hexdigest())
        return data

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@contextlib.contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Converts any error caused by a damaged bundle to a one-line InputError."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: expected a bundle (.ekb), found no file") from None
    except ManifestError as error:
        raise InputError(f"{path}: {error}") from None
    except _DAMAGED as error:
        found = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: expected an intact bundle (.ekb), found: {found}; build it again with: "
            "edgekit compile"
        ) from None


def _read(path: Path) -> Bundle:
    with contextlib.ExitStack() as closing:
        file = closing.enter_context(open_file(path))
        archive = open_archive(file)
        manifest = parse_manifest(_read_limited(archive, MANIFEST, MAX_MANIFEST_BYTES))
        names = set(archive.namelist())
        listed = {entry.path for entry in manifest.files}
        if odd := sorted(names - {MANIFEST, SIGNATURE} ^ listed):
            raise ValueError(f"'{odd[0]}' not both in the manifest and the archive")
        for entry in manifest.files:
            _check_file(archive, entry)
        signature = b""
        if SIGNATURE in names:
            signature = _read_limited(archive, SIGNATURE, MAX_SIGNATURE_BYTES)
        closing.pop_all()  # the archive stays open as long as its files are in use
    return Bundle(manifest, _Files(path, archive, manifest), signature)


def _read_limited(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ValueError(f"no {name}") from None
    if info.file_size > most:
        raise ValueError(f"{name} of {info.file_size} bytes")
    return archive.read(info)


def _check_file(archive: zipfile.ZipFile, entry: FileEntry) -> None:
    digest, size = hashlib.sha256(), 0
    with archive.open(entry.path) as reader:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    _check_entry(entry, size, digest.hexdigest())


def _check_entry(entry: FileEntry, size: int, digest: str) -> None:
    if size != entry.bytes:
        raise ValueError(f"'{entry.path}' of {size} bytes instead of {entry.bytes}")
    if digest != entry.sha256:
        raise ValueError(f"'{entry.path}' with SHA-256 {digest[:16]}, not {entry.sha256[:16]}")
