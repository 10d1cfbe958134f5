"""Whether a folder can hold releases, whose files are written and executed, and which other could.

Nothing is written: on a board that is only examined, nothing may change.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from pathlib import Path
from typing import Callable, Iterator, List, Tuple

_MOUNTS = Path("/proc/self/mounts")
_VOLATILE = frozenset(("tmpfs", "ramfs", "devtmpfs"))
_USUAL = ("/opt", "/srv", "/var/lib", "/var/tmp")
_MOST_FILES = 64  # to look at until one can be mapped

Statvfs = Callable[[str], os.statvfs_result]


def find_trouble(
    folder: Path,
    statvfs: Statvfs = os.statvfs,
    may_write: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK | os.X_OK),
    map_file: Callable[..., mmap.mmap] = mmap.mmap,
) -> str:
    """Returns why releases in `folder` could not be written or executed; empty if they can be."""
    flags = statvfs(str(folder)).f_flag
    if flags & os.ST_RDONLY:
        return "on a read-only mount"
    if not may_write(folder):
        return "not writable by this user"
    if flags & os.ST_NOEXEC:
        return "on a mount with noexec"
    for file in _files_in(folder):
        with contextlib.suppress(FileNotFoundError):
            return _try_to_map(file, map_file)
    return ""


def another_folder(
    mounts: str = "", statvfs: Statvfs = os.statvfs, user: int = os.geteuid()
) -> str:
    """Returns a folder that can hold releases and survives reboots; empty if this user may write to
    none. `mounts` has the form of /proc/self/mounts, the default."""
    rows = _parse_mounts(mounts or _MOUNTS.read_text(errors="surrogateescape"))
    disks = [point for device, point, _ in rows if device.startswith("/") and point != "/"]
    for parent in (*(p for p in disks if not p.startswith(("/boot", "/etc"))), *_USUAL):
        path = Path(parent)
        with contextlib.suppress(OSError):
            kept = _file_system(path, rows) not in _VOLATILE
            if kept and path.is_dir() and not find_trouble(path, statvfs):
                shared = path.stat().st_mode & stat.S_ISVTX
                return str(path / (f"edgekit-{user}" if shared else "edgekit"))
    return ""


def _files_in(folder: Path) -> Iterator[Path]:
    """Yields some files of an existing installation: runtimes and libraries of releases."""
    found = (p for pattern in ("runtime/*.pyz", "releases/*/*.so") for p in folder.glob(pattern))
    for _, path in zip(range(_MOST_FILES), found):
        if path.is_file() and path.stat().st_size:
            yield path


def _try_to_map(file: Path, map_file: Callable[..., mmap.mmap]) -> str:
    """Maps a file as the loader maps a library; security modules may refuse for other reasons."""
    with file.open("rb") as opened:
        try:
            map_file(
                opened.fileno(), 1, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC
            ).close()
        except OSError as error:
            return f"whose files may not be executed ({error.strerror})"
    return ""


def _parse_mounts(text: str) -> List[Tuple[str, str, str]]:
    """Returns device, mount point and type of each file system."""
    rows = (line.split() for line in text.splitlines())
    return [(row[0], row[1].replace("\\040", " "), row[2]) for row in rows if len(row) > 2]


def _file_system(path: Path, rows: List[Tuple[str, str, str]]) -> str:
    """Returns the type of the file system that holds `path`; later mounts cover earlier ones."""
    above = {str(path), *map(str, path.parents)}
    holding = [row for row in rows if row[1] in above]
    longest = max((len(point) for _, point, _ in holding), default=0)
    return next((kind for _, point, kind in reversed(holding) if len(point) == longest), "")
