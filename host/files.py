"""Writing files so that they are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Replaces `path` by `data` at once, through a temporary file beside it.

    Raises OSError and leaves nothing behind where that fails, or where `path` is something other
    than a regular file: a device must not be replaced.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is there and is not a regular file")
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise
