"""Verifies that an installed release is unchanged, before any part of it is used.

Flash wears out and power cuts tear files, so every load of a release first reads all of it and
compares size and CRC-32 with `installed.json`, written at installation. CRC-32 detects every burst
error of up to 32 bits, is in every Python and reads 60 MB in 0.07 s, where SHA-256 takes 0.4 s. The
manifest's SHA-256 hashes are checked on request: `status`, `verify`, `rollback`.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import Dict, Optional, Tuple

from edgekit.device.runtime.agent.manifest import (
    MANIFEST,
    SIGNATURE,
    Manifest,
    is_release_id,
    parse_manifest,
)
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.store import manifest_text, sha256_of, write_synced
from edgekit.device.runtime.errors import DeviceError, TransferError

INSTALLED = "installed.json"
HEAD = (MANIFEST, SIGNATURE)

_MOST_BYTES = 1 << 23  # of the record; the manifest it is made from has at most half of that

Sums = Dict[str, Tuple[int, int]]  # size and CRC-32 by path


def write_record(folder: Path, manifest: Manifest) -> None:
    """Records size and CRC-32 of every file of a release that was just verified."""
    head = [name for name in HEAD if (folder / name).exists()]
    paths = [*head, *(entry.path for entry in manifest.files)]
    with ReleaseFiles(folder) as opened:
        files = {path: _size_and_crc(opened, path) for path in paths}
    write_synced(folder / INSTALLED, _encode_record(files))


def find_damage(folder: Path, full: bool = False) -> str:
    """Describes the first file that differs from the installed state; empty if there is none.

    `full` also compares SHA-256. A release whose record is missing or damaged is compared in full
    and gets a new record.
    """
    with ReleaseFiles(folder) as files:
        return damage_of(files, full)


def damage_of(files: ReleaseFiles, full: bool = False) -> str:
    """Like `find_damage`, for files that stay open, to be loaded."""
    sums = _read_record(files.folder)
    damage = _find_by_sum(files, sums) if sums else ""
    if damage or (sums and not full):
        return damage
    manifest, damage = _manifest_of(files)
    if manifest is None or damage:
        return damage
    damage = _find_by_manifest(files, manifest)
    if not damage and not sums:
        with contextlib.suppress(OSError, DeviceError):  # a read-only disk
            write_record(files.folder, manifest)
    return damage


def open_intact(folder: Path) -> ReleaseFiles:
    """Opens the files of a release, to be loaded; TransferError if one is damaged."""
    files = ReleaseFiles(folder)
    if damage := damage_of(files):
        files.close()
        raise TransferError(f"{damage}; deploy again")
    return files


def installed_sum(folder: Path, path: str) -> Tuple[int, int]:
    """Returns the recorded size and CRC-32 of a file; zeros without a record."""
    return _read_record(folder).get(path, (0, 0))


def find_damage_of_head(folder: Path) -> str:
    """Describes the damage of the manifest or its signature; empty if both are intact."""
    sums = _read_record(folder)
    with ReleaseFiles(folder) as files:
        if sums:
            return _find_by_sum(files, {name: sums[name] for name in HEAD if name in sums})
        return _manifest_of(files)[1]


def record_damage(folder: Path) -> str:
    """Describes the damage of the record itself; empty if it is intact or was never written."""
    if _read_record(folder) or not os.path.lexists(folder / INSTALLED):
        return ""
    return f"{INSTALLED}: expected checksums of the files, found a damaged record; it is rewritten"


def _find_by_sum(files: ReleaseFiles, sums: Sums) -> str:
    for path, expected in sums.items():
        try:
            found = _size_and_crc(files, path, expected[0])
        except OSError as error:
            return f"{path}: expected {expected[0]} bytes, found {error.strerror}"
        if found[0] != expected[0]:
            return f"{path}: expected {expected[0]} bytes, found {found[0]}"
        if found[1] != expected[1]:
            return f"{path}: expected CRC-32 {expected[1]:08x}, found {found[1]:08x}"
    return ""


def _find_by_manifest(files: ReleaseFiles, manifest: Manifest) -> str:
    for entry in manifest.files:
        try:
            size, found = files.size(entry.path), sha256_of(files.chunks(entry.path))
        except OSError as error:
            return f"{entry.path}: expected {entry.bytes} bytes, found {error.strerror}"
        if size != entry.bytes:
            return f"{entry.path}: expected {entry.bytes} bytes, found {size}"
        if found != entry.sha256:
            return f"{entry.path}: expected SHA-256 {entry.sha256[:16]}, found {found[:16]}"
    return ""


def _manifest_of(files: ReleaseFiles) -> Tuple[Optional[Manifest], str]:
    """Returns the manifest if it is intact, else None and the damage."""
    try:
        data = manifest_text(files)
        manifest = parse_manifest(data)
    except DeviceError as error:
        text = str(error).partition(";")[0]
        return None, text if MANIFEST in text else f"{MANIFEST}: {text}"
    release = files.folder.name
    if is_release_id(release) and manifest.id != release:
        return None, f"{MANIFEST}: expected release {release}, found {manifest.id}"
    if data != manifest.to_json():
        return None, f"{MANIFEST}: expected its original text, found it changed"
    return manifest, ""


def _size_and_crc(
    files: ReleaseFiles, path: str, expected: Optional[int] = None
) -> Tuple[int, int]:
    """Returns size and CRC-32 of a file; one that has not the `expected` size is not read."""
    size, found = files.size(path), 0
    if expected is not None and size != expected:
        return size, 0
    for chunk in files.chunks(path):
        found = zlib.crc32(chunk, found)
    return size, found


def _encode_record(files: Sums) -> bytes:
    """Serializes the record deterministically, so that any changed byte is detected."""
    sums = json.dumps(files, sort_keys=True)
    return f'{{"crc32": {zlib.crc32(sums.encode("ascii"))}, "files": {sums}}}\n'.encode("ascii")


def _read_record(folder: Path) -> Sums:
    """Returns an empty record if it is missing or damaged."""
    try:
        with (folder / INSTALLED).open("rb") as file:
            data = file.read(_MOST_BYTES)
        files = json.loads(data)["files"]
        sums = {str(path): (int(size), int(crc)) for path, (size, crc) in files.items()}
        return sums if data == _encode_record(sums) else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
