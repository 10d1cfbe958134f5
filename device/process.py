"""Which process is which, and whether a file is locked, without touching either."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_LOCKS = Path("/proc/locks")


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
        inode = f":{path.stat().st_ino}"
        return any(line.split()[5].endswith(inode) for line in _LOCKS.read_text().splitlines())
    except (OSError, IndexError):
        return False


def _started(pid: int) -> int:
    """-1 if there is no process of that number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1
