"""Rebuilds a file from an older one and a delta, in bounded memory, with the standard library only.

A retrained model has nearly all of its bytes changed a little and few of them moved. So a delta
holds a difference for each byte, xz-compressed, and where the old bytes are. Of floats the high
bytes hardly change and the low ones are noise: the bytes of each place in a word of `width` bytes
come together.

    head      MAGIC, then the width as one byte
    body      xz: per block of BLOCK bytes of the new file
                  the number of pieces (u16), offset (u64) and length (u32) of each in the old file
                  (new - old) modulo 256, by planes; old bytes behind its end count as 0

The caller must check the SHA-256 of what was rebuilt: a delta is not trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
from pathlib import Path
from typing import IO, Iterator, List, Optional, Protocol, Tuple

from edgekit.device.runtime.agent.manifest import FileEntry
from edgekit.device.runtime.agent.store import Store, sync_folder
from edgekit.device.runtime.errors import DeviceError, TransferError
from edgekit.device.runtime.record import Record

log = logging.getLogger("edgekit.fetch")

MAGIC = b"EKDELTA1"
WIDTHS = (1, 2, 4)
BLOCK = 1 << 18
COUNT, PIECE = struct.Struct("<H"), struct.Struct("<QI")
DICTIONARY = 1 << 20  # bytes of memory to decompress
LEAST_BYTES = 1 << 15  # of a file; below, asking costs more than it saves
MOST_SHARE = 0.7  # of the whole file, that a delta may have
_MOST_MEMORY = 8 << 20
_PIECE = 1 << 16
_FARTHEST = 1 << 40


class Base(Record):
    """A file of the release in service."""

    path: Path
    sha256: str


class DeltaSource(Protocol):
    """A server's deltas; see ServerLink.delta."""

    def delta(self, name: str, most: int, path: Path) -> int: ...


def delta_name(target: str, base: str) -> str:
    """The name of the delta from a file to another, by the SHA-256 of both."""
    return f"{target[:40]}.{base[:40]}"


def base_of(store: Store, path: str) -> Optional[Base]:
    """The file at `path` of the release in service; None without one."""
    current = store.links().current
    files: Tuple[FileEntry, ...] = ()
    with contextlib.suppress(DeviceError):
        files = store.manifest(current).files if current else ()
    found = next((entry for entry in files if entry.path == path), None)
    return Base(store.releases / str(current) / path, found.sha256) if found else None


def fetch_by_delta(source: DeltaSource, entry: FileEntry, base: Base, files: Path) -> int:
    """Downloads the delta from `base` to `entry`, and puts the new file into `files` under its
    SHA-256; returns the bytes saved. Returns 0 if the whole file must be downloaded, of which a
    part may be there. OSError if `files` cannot be written."""
    target = files / entry.sha256
    if target.exists() or entry.bytes < LEAST_BYTES:
        return 0
    name = delta_name(entry.sha256, base.sha256)
    delta, made = files / f"{name}.delta", files / f"{name}.made"
    length = source.delta(name, int(MOST_SHARE * entry.bytes), delta)
    if not length:
        return 0
    try:
        found = rebuild(base.path, delta, entry.bytes, made)
        if found == entry.sha256:
            made.replace(target)
            sync_folder(files)
            return entry.bytes - length
        raise _wrong(f"one for {found[:16]}")
    except TransferError as error:
        log.warning("%s: %s", entry.path, error)
        return 0
    finally:
        made.unlink(missing_ok=True)
        delta.unlink(missing_ok=True)


def rebuild(base: Path, delta: Path, length: int, target: Path) -> str:
    """Writes the `length` bytes of the new file to `target`, synced; returns their SHA-256.
    TransferError if the delta is not one for a file of that length; OSError if it cannot be
    written."""
    digest = hashlib.sha256()
    try:
        old = base.open("rb")
    except OSError as error:
        raise _wrong(f"no file to begin with ({error.strerror})") from None
    with old, target.open("wb") as new:
        for pieces, block, width in _blocks(delta, length):
            before = b"".join(_read(old, offset, size) for offset, size in pieces)
            data = _added(_interleaved(block, width), before)
            digest.update(data)
            new.write(data)
        new.flush()
        os.fsync(new.fileno())
    return digest.hexdigest()


def _blocks(delta: Path, length: int) -> "Iterator[Tuple[List[Tuple[int, int]], bytes, int]]":
    """Of each block the pieces of the old file, the differences, and their width."""
    with delta.open("rb") as file:
        head = file.read(len(MAGIC) + 1)
        if head[:-1] != MAGIC or head[-1] not in WIDTHS:
            raise _wrong("another head")
        body = _Body(file)
        while length > 0:
            size = min(BLOCK, length)
            length -= size
            (count,) = COUNT.unpack(body.take(COUNT.size))
            pieces = list(PIECE.iter_unpack(body.take(count * PIECE.size)))
            if sum(piece for _, piece in pieces) != size or any(at > _FARTHEST for at, _ in pieces):
                raise _wrong("pieces of another length")
            yield pieces, body.take(size), head[-1]


class _Body:
    """The decompressed rest of a file."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            import lzma  # some builds of Python lack it
        except ImportError:
            raise _wrong("no lzma in this Python") from None
        self._file, self._error = file, lzma.LZMAError
        self._unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_MEMORY)

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        parts = []
        while size > 0:
            packed = self._file.read(_PIECE) if self._unpack.needs_input else b""
            if self._unpack.eof or (self._unpack.needs_input and not packed):
                raise _wrong("its end early")
            try:
                parts.append(self._unpack.decompress(packed, size))
            except self._error as error:
                raise _wrong(str(error)) from None
            size -= len(parts[-1])
        return b"".join(parts)


def _read(file: IO[bytes], offset: int, size: int) -> bytes:
    """A piece of the old file; zeros behind its end."""
    try:
        file.seek(offset)
        return file.read(size).ljust(size, b"\0")
    except OSError as error:
        raise _wrong(f"an unreadable file to begin with ({error.strerror})") from None


def _interleaved(planes: bytes, width: int) -> bytes:
    """Puts the planes of a block back into words; a last word may be incomplete."""
    if width == 1:
        return planes
    words, start = bytearray(len(planes)), 0
    for place in range(width):
        count = len(range(place, len(planes), width))
        words[place::width] = planes[start : start + count]
        start += count
    return bytes(words)


def _added(differences: bytes, old: bytes) -> bytes:
    """Sums of bytes modulo 256, as one addition of long integers without carries between bytes."""
    size = len(differences)
    low, high = (int.from_bytes(byte * size, "little") for byte in (b"\x7f", b"\x80"))
    one = int.from_bytes(differences, "little")
    two = int.from_bytes(old, "little")
    return (((one & low) + (two & low)) ^ ((one ^ two) & high)).to_bytes(size, "little")


def _wrong(found: str) -> TransferError:
    return TransferError(
        f"delta: expected one for this file, found {found}; fetching the whole file"
    )
