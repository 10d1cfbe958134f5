"""Arrays in an unnamed file, for models whose weights would take a large part of memory.

While such a model is compiled, only the weights of the operator at hand are needed. Their pages
leave memory between operators, and come back from the system's cache of files or from disk.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.host.common.content import map_file, release_pages

Array = NDArray[Any]
LEAST_ARRAY = 1 << 16  # bytes; smaller ones are not worth a page of their own


class PagedArrays:
    """Up to `size` bytes of arrays in a file that ends with the last of them.

    Arrays stay in memory where the file would not fit into `folder`.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._next, self._pages = 0, map_file(folder, size) if size else None

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
