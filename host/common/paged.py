"""Arrays in an unnamed file, for models whose weights would take a large part of memory.

While such a model is compiled, only the weights of the operator at hand are needed. Their pages
leave memory between operators, and come back from the system's cache of files or from disk.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEAST_ARRAY = 1 << 16  # bytes; smaller ones are not worth a page of their own
_in_use: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class PagedArrays:
    """Up to `size` bytes of arrays in a file that ends with the last of them.

    Arrays stay in memory where the file would not fit into `folder`.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._next, self._pages = 0, _map_file(folder, size) if size else None

    def keep(self, array: Array) -> Array:
        """A copy in the file; `array` itself if it is small or does not fit."""
        end = self._next + array.nbytes
        if self._pages is None or array.nbytes < LEAST_ARRAY or end > len(self._pages):
            return array
        count = array.size
        made = np.frombuffer(self._pages, array.dtype, count, self._next).reshape(array.shape)
        np.copyto(made, array)
        self._next = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        release_pages()
        return made


def release_pages() -> None:
    """Takes the pages of all arrays in files out of this process's memory; their values remain."""
    for pages in tuple(_in_use):
        pages.madvise(mmap.MADV_DONTNEED)


def _map_file(folder: Path, size: int) -> mmap.mmap | None:
    # A file with holes on a full disk would end the process at the first write that finds no room.
    with contextlib.suppress(OSError, AttributeError):  # macOS cannot reserve room
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            pages = mmap.mmap(file.fileno(), size)
        _in_use.add(pages)
        return pages
    return None
