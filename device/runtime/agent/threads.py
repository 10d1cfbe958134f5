"""CPU time of a process's threads and of other programs, from unprivileged /proc files."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from edgekit.device.runtime.agent.kernel_files import read_text
from edgekit.device.runtime.record import Record

_PROC = Path("/proc")
_SHOWN = 3  # other programs, busiest first
_LEAST = 5.0  # percent of a core above which a program is listed
_MINOR, _MAJOR, _USER, _SYSTEM = 7, 9, 11, 12  # indexes in /proc/PID/stat, counted after the name


class ThreadUse(Record):
    """A thread's time in percent: on a core, runnable without one, asleep.

    `delayed` is None where the kernel does not account for it (no schedstat); `asleep` includes it.
    """

    thread: int
    running: float
    delayed: Optional[float]
    asleep: float


class OtherProgram(Record):
    """Another user program, and the percent of a core it used."""

    process: int
    name: str
    percent: float


class Usage(Record):
    """A process over some time: its threads, oldest (the caller's) first; percent of its CPU
    time in the kernel; page faults per second without and with disk access; the busiest other
    programs."""

    threads: Tuple[ThreadUse, ...]
    kernel: float
    minor_faults: float
    major_faults: float
    others: Tuple[OtherProgram, ...]


class CpuTime:
    """Accounts for a process from construction on."""

    def __init__(self, process: int) -> None:
        self._process, self._start = process, time.monotonic()
        self._threads = _thread_times(process)
        self._stat, self._others = _read_stat(process), _list_programs(process)

    def usage(self) -> Usage:
        """Returns the usage since construction; OSError if the process is gone."""
        seconds = max(time.monotonic() - self._start, 1e-3)
        now, stat = _thread_times(self._process), _read_stat(self._process)
        uses = [
            _thread_use(t, before, now[t], seconds)
            for t, before in self._threads.items()
            if t in now
        ]
        ticks = [stat[i] - self._stat[i] for i in range(len(stat))]
        spent = ticks[_USER] + ticks[_SYSTEM]
        return Usage(
            tuple(uses),
            100.0 * ticks[_SYSTEM] / spent if spent else 0.0,
            ticks[_MINOR] / seconds,
            ticks[_MAJOR] / seconds,
            _busiest_programs(self._others, _list_programs(self._process), seconds),
        )


def threads_of(process: int) -> List[int]:
    """Returns the process's thread ids, oldest first; OSError if it is gone."""
    return sorted(int(path.name) for path in (_PROC / str(process) / "task").iterdir())


def state_of(thread: int) -> str:
    """Returns R for a running or runnable thread, another letter for a waiting one; OSError if
    gone."""
    return (_PROC / str(thread) / "stat").read_text("utf-8").rpartition(")")[2].split()[0]


def _thread_times(process: int) -> Dict[int, Tuple[float, Optional[float]]]:
    """Returns each thread's seconds on a core, and runnable without one."""
    found: Dict[int, Tuple[float, Optional[float]]] = {}
    for thread in threads_of(process):
        folder = _PROC / str(process) / "task" / str(thread)
        words = (read_text(folder / "schedstat") or "").split()
        if len(words) == 3 and int(words[0]):
            found[thread] = int(words[0]) / 1e9, int(words[1]) / 1e9
        else:
            stat = _parse_stat((folder / "stat").read_text("utf-8", "replace"))
            found[thread] = (stat[_USER] + stat[_SYSTEM]) / os.sysconf("SC_CLK_TCK"), None
    return found


def _thread_use(
    thread: int,
    before: Tuple[float, Optional[float]],
    now: Tuple[float, Optional[float]],
    seconds: float,
) -> ThreadUse:
    running = min(100.0 * (now[0] - before[0]) / seconds, 100.0)
    delayed = None
    if before[1] is not None and now[1] is not None:
        delayed = min(100.0 * (now[1] - before[1]) / seconds, 100.0 - running)
    return ThreadUse(thread, running, delayed, 100.0 - running - (delayed or 0.0))


def _read_stat(process: int) -> List[int]:
    return _parse_stat((_PROC / str(process) / "stat").read_text("utf-8", "replace"))


def _parse_stat(text: str) -> List[int]:
    """Returns the numbers after the name, which may contain anything; 0 for the state letter."""
    words = text.rpartition(")")[2].split()
    return [int(w) if w.lstrip("-").isdigit() else 0 for w in words[: _SYSTEM + 1]]


def _list_programs(process: int) -> Dict[int, Tuple[str, int]]:
    """Returns names and ticks of all processes except the observed one and this one."""
    found = {}
    for path in _PROC.glob("[0-9]*/stat"):
        number = int(path.parent.name)
        if number in (process, os.getpid()):
            continue
        with contextlib.suppress(OSError):  # it exited meanwhile
            text = path.read_text("utf-8", "replace")
            fields = _parse_stat(text)
            found[number] = text[text.find("(") + 1 : text.rfind(")")], sum(fields[_USER:])
    return found


def _busiest_programs(
    before: Dict[int, Tuple[str, int]], now: Dict[int, Tuple[str, int]], seconds: float
) -> Tuple[OtherProgram, ...]:
    per_tick = 100.0 / (os.sysconf("SC_CLK_TCK") * seconds)
    found = [
        OtherProgram(number, name, per_tick * (ticks - before.get(number, (name, 0))[1]))
        for number, (name, ticks) in now.items()
        if number in before
    ]
    busy = [program for program in found if program.percent >= _LEAST]
    return tuple(sorted(busy, key=lambda p: -p.percent)[:_SHOWN])
