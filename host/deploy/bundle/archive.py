"""Reproducible zip archives: stored, no times, no users, entries in the order given.

Reading takes only what writing makes: nothing compressed, no comment, no 64-bit extensions, a
directory of bounded size. Python's zipfile then has nothing left to be surprised by.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Iterable
from typing import IO

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE_MODE, _FOLDER_MODE = 0o100644, 0o040755
_ENCRYPTED = 0x1
_MAX_ENTRIES = 4096
_MAX_DIRECTORY_BYTES = 1 << 20
_END = struct.Struct("<4s4H2LH")  # "end of central directory", the last bytes of a file
_END_MAGIC, _END64_MAGIC = b"PK\5\6", b"PK\6\7"


def archive_bytes(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip of `entries`; a name ending in `/` is a folder. The same on every machine."""
    buffer = io.BytesIO()
    write_archive(buffer, entries)
    return buffer.getvalue()


def write_archive(file: IO[bytes], entries: Iterable[tuple[str, bytes]]) -> None:
    """Writes what `archive_bytes` gives, one entry at a time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = (_FOLDER_MODE if name.endswith("/") else _FILE_MODE) << 16
            archive.writestr(info, data)


def open_archive(file: IO[bytes]) -> zipfile.ZipFile:
    """`file` as a zip; ValueError or zipfile's own errors if it is not as `write_archive` makes it.

    With nothing compressed and nothing twice, no entry can be larger than the file it is in.
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
    """Refuses an archive whose directory alone would take much memory."""
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
