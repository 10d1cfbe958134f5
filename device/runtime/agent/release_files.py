"""The files of a release's folder, opened in a way that what was verified is what is loaded.

A path can name another file at any moment. Manifest, weights and libraries are therefore opened
once, by the verification, and then read, mapped and loaded through the same descriptors. Symbolic
links are not followed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path
from typing import Dict, Iterator

_DESCRIPTORS = "/proc/self/fd"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 18
_NUMBERS = itertools.count()


class ReleaseFiles:
    """The files below `folder`, by their paths in the manifest. Raises OSError where one cannot be
    opened. Descriptors are closed with the object; what was loaded or mapped through them stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folder = -1
        self._kept: Dict[str, int] = {}

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """Yields the descriptor of a regular file."""
        found = self._kept.get(path, -1)
        if found >= 0:
            yield found
            return
        found = self._open(path)
        if "/" not in path or path.endswith(".so"):
            self._kept[path] = found  # others are many, and never mapped
            yield found
            return
        try:
            yield found
        finally:
            os.close(found)

    def size(self, path: str) -> int:
        with self.opened(path) as descriptor:
            return os.fstat(descriptor).st_size

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yields the content."""
        with self.opened(path) as descriptor:
            place = 0
            while chunk := os.pread(descriptor, _CHUNK, place):
                yield chunk
                place += len(chunk)

    def read(self, path: str) -> bytes:
        return b"".join(self.chunks(path))

    def loader_path(self, path: str) -> str:
        """Returns a path of an open file for the dynamic loader; the original one without /proc.

        The loader takes a path that it has seen for the same library, though descriptors are
        reused. Each call therefore spells the path differently: with `/` for a 0 and `/.` for a 1.
        """
        with self.opened(path) as descriptor:
            if not os.path.isdir(_DESCRIPTORS):  # noqa: PTH112
                return str((self.folder / path).resolve())
            digits = f"{next(_NUMBERS):b}"
            spelled = "".join("/." if digit == "1" else "/" for digit in digits)
            return f"{_DESCRIPTORS}{spelled}/{descriptor}"

    def __enter__(self) -> ReleaseFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        for descriptor in (*self._kept.values(), self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._kept, self._folder = {}, -1

    def _open(self, path: str) -> int:
        if self._folder < 0:
            self._folder = os.open(self.folder, _FLAGS | os.O_DIRECTORY)
        *folders, name = path.split("/")
        with contextlib.ExitStack() as held:
            within = self._folder
            for folder in folders:
                within = os.open(folder, _FLAGS | os.O_DIRECTORY, dir_fd=within)
                held.callback(os.close, within)
            found = os.open(name, _FLAGS, dir_fd=within)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            raise OSError(errno.EINVAL, "something else than a file")
        return found
