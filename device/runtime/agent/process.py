"""Identifies processes and tests file locks, without side effects on either."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, List, Tuple

from edgekit.device.runtime.record import Record

_LOCKS = Path("/proc/locks")
_MOUNTS = Path("/proc/self/mountinfo")


class Process(Record):
    """`pid` and `started` (clock ticks since boot) together identify a process uniquely."""

    pid: int
    started: int

    @staticmethod
    def this() -> Process:
        return Process(os.getpid(), _start_time(os.getpid()))

    def lives(self) -> bool:
        return self.started >= 0 and _start_time(self.pid) == self.started

    def terminate(self) -> None:
        """Ends the process, unless it has already exited."""
        import signal  # most starts end no process

        if self.lives():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)


def is_locked(path: Path, locks: Path = _LOCKS) -> bool:
    """Whether a process holds a flock on `path`, according to the kernel's file `locks`; never
    acquires the lock, not even briefly."""
    try:
        with path.open("rb") as file:
            name = f"{_device_number(file.fileno())}:{os.fstat(file.fileno()).st_ino}"
        return any(line.split()[5] == name for line in locks.read_text().splitlines())
    except (OSError, IndexError, ValueError):
        return False


def is_file_of(file: IO[str], path: Path) -> bool:
    """Whether `path` still refers to the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def users_of(folder: Path) -> List[Tuple[int, str]]:
    """Returns pid and name of processes that map a file below `folder`, as far as this user may
    see: sessions, and programs that loaded a model's library from there."""
    below = f" {folder.resolve()}/"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it exited, or belongs to another user
            lines = (process / "maps").read_text(errors="replace").splitlines()
            if any(below in line and not line.endswith(" (deleted)") for line in lines):
                found.append((int(process.name), (process / "comm").read_text().strip()))
    return sorted(found)


def _device_number(descriptor: int) -> str:
    """Returns the file system's device as listed in /proc/locks. On Btrfs and overlayfs, stat
    reports another number, but /proc/self/mountinfo has the same one."""
    about = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    mount = next((line.split()[1] for line in about.splitlines() if line[:7] == "mnt_id:"), "")
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        number, _, device = line.split(maxsplit=3)[:3]
        if number == mount:
            major, _, minor = device.partition(":")
            return f"{int(major):02x}:{int(minor):02x}"
    own = os.fstat(descriptor).st_dev
    return f"{os.major(own):02x}:{os.minor(own):02x}"


def _start_time(pid: int) -> int:
    """Returns the process's start time; -1 if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1
