"""A process that is known by more than its number, which the system gives out again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

_START_TIME = 19  # fields of /proc/PID/stat after the name in parentheses: state is 0


def start_mark(pid: int) -> str | None:
    """What tells a process from all others that have its number; None if it is not alive.

    The start of this boot and the process's start in it. A process that ended and was not waited
    for is not alive.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot}/{fields[_START_TIME]}"


def kill(pid: int, mark: str) -> None:
    """Ends the process at once and waits for its end; nothing happens if it is another by now."""
    with _opened(pid, mark) as descriptor:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [])
    _reap(pid)


def wait_end(pid: int, mark: str, seconds: float) -> bool:
    """Waits for the process's end; False if it is still there after `seconds`."""
    with _opened(pid, mark) as descriptor:
        if descriptor is not None and not select.select([descriptor], [], [], seconds)[0]:
            return False
    _reap(pid)
    return True


@contextlib.contextmanager
def _opened(pid: int, mark: str) -> Iterator[int | None]:
    """A descriptor of the process, None if it is not the marked one."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        # Looked at after opening: from here on the descriptor cannot mean another process.
        yield descriptor if start_mark(pid) == mark else None
    finally:
        os.close(descriptor)


def _reap(pid: int) -> None:
    """Takes the exit code if the process was our child, so that no zombie stays."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
