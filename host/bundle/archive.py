"""Reproducible zip archives: stored, no times, no users, entries in the order given."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE_MODE, _FOLDER_MODE = 0o100644, 0o040755


def archive_bytes(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip of `entries`; a name ending in `/` is a folder. The same on every machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = (_FOLDER_MODE if name.endswith("/") else _FILE_MODE) << 16
            archive.writestr(info, data)
    return buffer.getvalue()
