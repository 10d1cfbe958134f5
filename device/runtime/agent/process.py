"""Which process is which, and whether a file is locked, without touching either."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import IO, List, Tuple

_LOCKS = Path("/proc/locks")
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Process:
    """`pid` and `started` (clock ticks since boot) name one process and never another."""

    pid: int
    started: int

    @staticmethod
    def this() -> Process:
        return Process(os.getpid(), _started(os.getpid()))

    def lives(self) -> bool:
        return self.started >= 0 and _started(self.pid) == self.started

    def terminate(self) -> None:
        """Ends it, unless it ended before."""
        if self.lives():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)


def is_locked(path: Path) -> bool:
    """Whether a process holds a flock on `path`; asking never takes it, not for a moment."""
    try:
        with path.open("rb") as file:
            name = f"{_device(file.fileno())}:{os.fstat(file.fileno()).st_ino}"
        return any(line.split()[5] == name for line in _LOCKS.read_text().splitlines())
    except (OSError, IndexError, ValueError):
        return False


def is_file_of(file: IO[str], path: Path) -> bool:
    """Whether the open file still is what `path` names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def users_of(folder: Path) -> List[Tuple[int, str]]:
    """Pid and name of the processes that have a file below `folder` mapped, as far as this user
    may see: a session, or any program that loaded a model's library from there."""
    below = f" {folder.resolve()}/"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is somebody else's
            lines = (process / "maps").read_text(errors="replace").splitlines()
            if any(below in line and not line.endswith(" (deleted)") for line in lines):
                found.append((int(process.name), (process / "comm").read_text().strip()))
    return sorted(found)


def _device(descriptor: int) -> str:
    """The file system as the kernel's list of locks names it; of Btrfs and overlays stat says
    another number than that list, but the list of mounts the same."""
    about = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    mount = next((line.split()[1] for line in about.splitlines() if line[:7] == "mnt_id:"), "")
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        number, _, device = line.split(maxsplit=3)[:3]
        if number == mount:
            major, _, minor = device.partition(":")
            return f"{int(major):02x}:{int(minor):02x}"
    own = os.fstat(descriptor).st_dev
    return f"{os.major(own):02x}:{os.minor(own):02x}"


def _started(pid: int) -> int:
    """-1 if there is no process of that number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1
