"""Reading and writing .ekb files; all distrust of a bundle's bytes lives here."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.errors import InputError as ManifestError
from edgekit.device.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    SIGNATURE,
    FileEntry,
    Manifest,
    parse_manifest,
)
from edgekit.host.bundle.archive import archive_bytes
from edgekit.host.errors import InputError
from edgekit.host.files import write_whole

_MAX_ENTRIES = 4096
_ENCRYPTED = 0x1
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
    """A manifest and the bytes of the files it lists, whose sizes and hashes were checked.

    `signature` is the detached signature of the manifest; empty while bundles are not signed.
    """

    manifest: Manifest
    files: Mapping[str, bytes]
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        """The .ekb file: the same bytes for the same content, on every machine."""
        head = [(MANIFEST, self.manifest.to_json())]
        if self.signature:
            head.append((SIGNATURE, self.signature))
        return archive_bytes([*head, *sorted(self.files.items())])

    def write(self, path: Path) -> None:
        """Writes the file as a whole or not at all; InputError if there is no room."""
        data = self.to_bytes()
        try:
            write_whole(path, data)
        except OSError as error:
            raise InputError(
                f"{path}: expected room for {len(data)} bytes, found: {error.strerror}; "
                "free some space or write elsewhere with -o"
            ) from None

    @staticmethod
    def read(path: Path) -> Bundle:
        """The bundle in `path`; InputError if anything in it is not as the manifest says."""
        try:
            with zipfile.ZipFile(path) as archive:
                return _read(archive, path.stat().st_size)
        except FileNotFoundError:
            raise InputError(f"{path}: expected a bundle (.ekb), found nothing there") from None
        except ManifestError as error:
            raise InputError(f"{path}: {error}") from None
        except _DAMAGED as error:
            found = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"{path}: expected a whole bundle (.ekb), found: {found}; "
                "build it again with: edgekit compile"
            ) from None


def _read(archive: zipfile.ZipFile, archive_size: int) -> Bundle:
    entries = _checked_entries(archive, archive_size)
    if MANIFEST not in entries:
        raise ValueError(f"no {MANIFEST}")
    if entries[MANIFEST].file_size > MAX_MANIFEST_BYTES:
        raise ValueError(f"{MANIFEST} of {entries[MANIFEST].file_size} bytes")
    manifest = parse_manifest(archive.read(MANIFEST))
    listed = {entry.path: entry for entry in manifest.files}
    if odd := sorted(set(entries) - {MANIFEST, SIGNATURE} ^ set(listed)):
        raise ValueError(f"'{odd[0]}' not both in the manifest and the archive")
    files = {name: _checked_file(archive, entries[name], listed[name]) for name in sorted(listed)}
    signature = archive.read(SIGNATURE) if SIGNATURE in entries else b""
    return Bundle(manifest, files, signature)


def _checked_entries(archive: zipfile.ZipFile, archive_size: int) -> dict[str, zipfile.ZipInfo]:
    """Entries by name; with nothing compressed, none can be larger than the file it is in."""
    infos = archive.infolist()
    if len(infos) > _MAX_ENTRIES:
        raise ValueError(f"{len(infos)} entries")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"'{info.filename}' compressed")
        if info.flag_bits & _ENCRYPTED:
            raise ValueError(f"'{info.filename}' encrypted")
    entries = {info.filename: info for info in infos}
    if len(entries) != len(infos):
        raise ValueError("an entry twice")
    if sum(info.file_size for info in infos) > archive_size:
        raise ValueError("entries larger than the file")
    return entries


def _checked_file(archive: zipfile.ZipFile, info: zipfile.ZipInfo, entry: FileEntry) -> bytes:
    if info.file_size != entry.bytes:
        raise ValueError(f"'{entry.path}' of {info.file_size} bytes instead of {entry.bytes}")
    data = archive.read(info)
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry.sha256:
        raise ValueError(f"'{entry.path}' with SHA-256 {digest[:16]}, not {entry.sha256[:16]}")
    return data
