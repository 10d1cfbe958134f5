"""Bytes in an unnamed file, for releases whose weights would take a large part of memory."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO

Content = bytes | memoryview  # of a file, in memory or in pages

_PART = 1 << 24  # bytes that are read together
_in_use: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class PagedBytes:
    """Bytes that are only appended: in memory up to `most` of them, then in a file in `folder`.

    They stay in memory where no file can be made.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._memory = io.BytesIO()  # gives its bytes without a copy
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return (self._file or self._memory).tell()

    def append(self, data: Content) -> None:
        if self._file is None and len(self) + len(data) > self._most:
            self._file = _file_with(self._folder, self._memory)
            self._most = self._most if self._file else sys.maxsize
        (self._file or self._memory).write(data)

    def view(self) -> Content:
        """What has been appended so far; a view of the file's pages once there is a file."""
        if self._file is None:
            return self._memory.getvalue()
        self._file.flush()
        pages = mmap.mmap(self._file.fileno(), len(self), access=mmap.ACCESS_READ)
        _in_use.add(pages)
        return memoryview(pages)


def parts_of(data: Content) -> Iterator[memoryview]:
    """Parts of `data`, which leave memory behind the reader if they are pages of a file."""
    view = memoryview(data)
    for at in range(0, len(view), _PART):
        yield view[at : at + _PART]
        release_pages()


def release_pages() -> None:
    """Takes the pages of all such files out of this process's memory; their values remain."""
    for pages in tuple(_in_use):
        pages.madvise(mmap.MADV_DONTNEED)


def map_file(folder: Path, size: int) -> mmap.mmap | None:
    """The pages of a new file of `size` bytes; None where there is no room for it."""
    # A file with holes on a full disk would end the process at the first write that finds no room.
    with contextlib.suppress(OSError, AttributeError):  # macOS cannot reserve room
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            pages = mmap.mmap(file.fileno(), size)
        _in_use.add(pages)
        return pages
    return None


def _file_with(folder: Path, memory: io.BytesIO) -> IO[bytes] | None:
    """A file with what is in `memory`, which is empty then; None where it cannot be made."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as unless_kept:
            file = unless_kept.enter_context(tempfile.TemporaryFile(dir=folder))
            file.write(memory.getbuffer())
            unless_kept.pop_all()
        memory.seek(0)
        memory.truncate()
        return file
    return None
