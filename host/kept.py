"""Files of the cache that others read from disk: each has its hash beside it.

What a crash, a full disk or a faulty one damaged is not whole any more, and is made again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def keep(made: Path, path: Path) -> None:
    """Puts the finished file `made` in the place of `path`, on the same disk, for good."""
    with made.open("rb+") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    _hash_file(path).unlink(missing_ok=True)  # never a hash beside what it is not of
    made.replace(path)
    _hash_file(path).write_bytes(digest.encode())  # a part of a hash is none


def is_kept(path: Path) -> bool:
    """Whether `path` is there, as it was when it was kept."""
    try:
        expected = _hash_file(path).read_bytes()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().encode() == expected
    except OSError:
        return False


def _hash_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
