"""Identifies processes robustly although the system reuses PIDs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

_START_TIME = 19  # field of /proc/PID/stat, counted from the state as 0


def start_mark(pid: int) -> str | None:
    """A mark that distinguishes a process from others with the same PID; None if it is not alive.

    It combines the boot id with the process start time. A zombie counts as not alive.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot}/{fields[_START_TIME]}"


def kill(pid: int, mark: str) -> None:
    """Kills the process and waits for its end; does nothing if the PID now belongs to another."""
    with _open_pidfd(pid, mark) as descriptor:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [])
    _reap(pid)


def wait_end(pid: int, mark: str, seconds: float) -> bool:
    """Waits for the process to end; False if it is still alive after `seconds`."""
    with _open_pidfd(pid, mark) as descriptor:
        if descriptor is not None and not select.select([descriptor], [], [], seconds)[0]:
            return False
    _reap(pid)
    return True


@contextlib.contextmanager
def _open_pidfd(pid: int, mark: str) -> Iterator[int | None]:
    """A pidfd of the process, or None if it is not the marked one."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        # Check after opening: from here on the descriptor cannot refer to another process.
        yield descriptor if start_mark(pid) == mark else None
    finally:
        os.close(descriptor)


def _reap(pid: int) -> None:
    """Reaps the process if it was our child, so that no zombie remains."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
