"""Reproducible zip archives: uncompressed, no timestamps or owners, entries in the given order.

The reader accepts only archives this module could have written: no compression, no comment, no
ZIP64 extensions, a central directory of bounded size. This keeps malformed input away from Python's
zipfile.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Iterable
from typing import IO

from edgekit.host.common.content import Content, parts_of

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE_MODE, _FOLDER_MODE = 0o100644, 0o040755
_ENCRYPTED = 0x1
_MAX_ENTRIES = 4096
_MAX_DIRECTORY_BYTES = 1 << 20
_END = struct.Struct("<4s4H2LH")  # "end of central directory", the last bytes of a file
_END_MAGIC, _END64_MAGIC = b"PK\5\6", b"PK\6\7"


def archive_bytes(entries: Iterable[tuple[str, Content]]) -> bytes:
    """Returns a zip of `entries`, identical on every machine; a name ending in `/` is a folder."""
    buffer = io.BytesIO()
    write_archive(buffer, entries)
    return buffer.getvalue()


def write_archive(file: IO[bytes], entries: Iterable[tuple[str, Content]]) -> None:
    """Writes the same bytes as `archive_bytes`, one entry at a time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = (_FOLDER_MODE if name.endswith("/") else _FILE_MODE) << 16
            info.file_size = len(data)
            with archive.open(info, "w") as entry:
                for part in parts_of(data):
                    entry.write(part)


def open_archive(file: IO[bytes]) -> zipfile.ZipFile:
    """Opens `file` as a zip; raises ValueError or a zipfile error if `write_archive` did not write
    it.

    Because nothing is compressed or duplicated, no entry can be larger than the archive.
    """
    size = file.seek(0, os.SEEK_END)
    _check_end(file, size)
    archive = zipfile.ZipFile(file)
    infos = archive.infolist()
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"'{info.filename}' compressed")
        if info.flag_bits & _ENCRYPTED:
            raise ValueError(f"'{info.filename}' encrypted")
    if len({info.filename for info in infos}) != len(infos):
        raise ValueError("an entry twice")
    if sum(info.file_size for info in infos) > size:
        raise ValueError("entries larger than the file")
    return archive


def _check_end(file: IO[bytes], size: int) -> None:
    """Rejects an archive whose central directory alone would use much memory."""
    locator_and_end = 20 + _END.size
    file.seek(max(size - locator_and_end, 0))
    tail = file.read(locator_and_end)
    magic, *_, entries, directory_bytes, _, comment = (
        _END.unpack(tail[-_END.size :]) if len(tail) >= _END.size else (b"", 0, 0, 0, 0)
    )
    if magic != _END_MAGIC or comment:
        raise ValueError("not a zip file, or one with a comment")
    if tail.startswith(_END64_MAGIC):
        raise ValueError("64-bit extensions")
    if entries > _MAX_ENTRIES:
        raise ValueError(f"{entries} entries")
    if directory_bytes > _MAX_DIRECTORY_BYTES:
        raise ValueError(f"a directory of {directory_bytes} bytes")
