"""Finds what running kernels wait for and where they spend time, with vmstat, top and perf.

Every tool may be missing or forbidden; the report then names the package or setting it needs, and
is otherwise complete: functions come from our own samples (sampled.py), threads from /proc.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.sampled import SampledPlaces, sample, shown
from edgekit.device.runtime.agent.symbols import UNKNOWN
from edgekit.device.runtime.agent.threads import CpuTime, OtherProgram
from edgekit.device.runtime.errors import DeviceError
from edgekit.device.runtime.record import Record

_TOOL_SECONDS = 60.0
_RECORD_SECONDS = 2
_SHOWN = 12  # instructions, hottest first
_FUNCTIONS = 5
_LONGEST_ERROR = 1000  # bytes
_ACCOUNT_SECONDS = 1.0  # of a process's threads, in addition to vmstat's time
_WAITING, _BUSY = 20.0, 80.0  # percent waiting for I/O; of a core
_FULL, _CACHED = 0.6, 1.5  # of the memory bandwidth: memory-bound from, data from a cache above
_COLUMNS = ("wa", "b", "si", "so")  # of vmstat: waiting for I/O, blocked, KiB/s swapped
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_PACKAGES = {"vmstat": "procps", "top": "procps", "perf": "linux-perf (Debian) or linux-tools"}


class Bottleneck(Record):
    """cpu, memory or io, and the supporting figures."""

    kind: str
    why: str


class HotFunction(Record):
    """Share of the samples in percent."""

    percent: float
    name: str


class HotInstruction(Record):
    """Share of the function's samples in percent, and the instruction as perf shows it."""

    percent: float
    text: str


class Hotspots(Record):
    """The findings; `missing` lists the package or setting that each unavailable tool needs."""

    bottleneck: Bottleneck
    functions: Tuple[HotFunction, ...]
    instructions: Tuple[HotInstruction, ...]
    missing: Tuple[str, ...]


class ThreadTime(Record):
    """A thread of a model, the caller's first. Percent of its time running, delayed (runnable
    without a core; None: unknown) and asleep; of its `samples`, the percent spent taking or
    awaiting work."""

    running: float
    delayed: Optional[float]
    asleep: float
    samples: int
    waiting: float


class ThreadHotspots(Record):
    """A process with all of its threads. `functions` come from `sampler` (sampled.py), in percent
    of all samples except those of waiting threads; `others` are the busiest other programs;
    `kernel` is the percent of its CPU time in Linux; page faults per second are without (minor) and
    with (major) disk access; `waiting` holds the vmstat columns for `classify`; `instructions` are
    the first function's."""

    sampler: str
    threads: Tuple[ThreadTime, ...]
    functions: Tuple[HotFunction, ...]
    instructions: Tuple[HotInstruction, ...]
    others: Tuple[OtherProgram, ...]
    kernel: float
    minor_faults: float
    major_faults: float
    waiting: Optional[Dict[str, int]]
    missing: Tuple[str, ...]


def watch(work: Callable[[], object], share: float) -> Hotspots:
    """Profiles `work`, repeated in a child process. `share`: its fraction of the memory
    bandwidth."""
    missing: List[str] = []
    with _repeat_in_child(lambda: work) as process:
        waiting = _run_vmstat(missing)
        busy = _cpu_percent(process, missing)
        functions, instructions = _run_perf(process, missing)
        if not functions:
            functions = _hottest_functions(sample(process, missing))
    bottleneck = classify(waiting, busy, share)
    return Hotspots(bottleneck, tuple(functions), tuple(instructions), tuple(missing))


def watch_threads(prepare: Callable[[], Callable[[], object]]) -> ThreadHotspots:
    """Profiles the function that `prepare` returns, repeated in a child process. `prepare` is
    called in the child, because threads do not survive a fork."""
    missing: List[str] = []
    with _repeat_in_child(prepare) as process:
        account = CpuTime(process)
        waiting = _run_vmstat(missing)
        time.sleep(_ACCOUNT_SECONDS)
        usage = account.usage()
        found = sample(process, missing)
        hottest = next((place.function for _, place in found.functions()), UNKNOWN)
        _, instructions = _run_perf(process, missing, hottest)
    threads = tuple(
        ThreadTime(
            use.running,
            use.delayed,
            use.asleep,
            len(found.places.get(use.thread, ())),
            found.waiting(use.thread),
        )
        for use in usage.threads
    )
    return ThreadHotspots(
        found.sampler,
        threads,
        tuple(_hottest_functions(found)),
        tuple(instructions),
        usage.others,
        usage.kernel,
        usage.minor_faults,
        usage.major_faults,
        waiting,
        tuple(missing),
    )


def _hottest_functions(found: SampledPlaces) -> List[HotFunction]:
    hottest = found.functions()[:_FUNCTIONS]
    return [HotFunction(percent, shown(place)) for percent, place in hottest]


def classify(
    waiting: Optional[Mapping[str, int]], busy: Optional[float], share: Optional[float]
) -> Bottleneck:
    """`waiting`: vmstat columns; `busy`: percent of a core, from top; `share`: fraction of the
    memory bandwidth. None: unknown."""
    facts = [] if share is None else [f"{share:.0%} of the memory's rate"]
    if busy is not None:
        facts.append(f"{busy:.0f}% of a core")
    if waiting is not None:
        facts.append(f"{waiting['wa']}% waiting for I/O, {waiting['b']} blocked")
        if waiting["si"] or waiting["so"]:
            return Bottleneck("memory", "swapping: " + ", ".join(facts))
        if waiting["wa"] >= _WAITING:
            return Bottleneck("io", ", ".join(facts))
    if is_bound_by_memory(share):
        return Bottleneck("memory", ", ".join(facts))
    if busy is not None and busy < _BUSY:
        return Bottleneck("cpu", "other programs take the cores: " + ", ".join(facts))
    return Bottleneck("cpu", ", ".join(facts))


def is_bound_by_memory(share: Optional[float]) -> bool:
    """`share` is the fraction of the memory bandwidth; above the upper limit, data come from a
    cache."""
    return share is not None and _FULL <= share <= _CACHED


@contextmanager
def _repeat_in_child(prepare: Callable[[], Callable[[], object]]) -> Iterator[int]:
    """Yields the id of a child process that does nothing but the work, and has started it."""
    reported, tell = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            work = prepare()
            work()
            os.write(tell, b".")
            while True:
                work()
        except BaseException as error:
            os.write(tell, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(1)
    try:
        os.close(tell)
        with os.fdopen(reported, "rb", buffering=0) as pipe:
            begun = pipe.read(_LONGEST_ERROR)
        if begun != b".":
            reason = begun.decode("utf-8", "replace") or "that it was killed"
            raise DeviceError(
                f"expected the profiled process to start, found {reason}; see what the board "
                "lacks: edgekit doctor"
            )
        yield process
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _run_tool(command: Sequence[str], missing: List[str]) -> str:
    """Returns a tool's output; empty, with a note in `missing`, if it is unavailable or fails."""
    if shutil.which(command[0]) is None:
        missing.append(f"{command[0]}: not installed; install {_PACKAGES[command[0]]}")
        return ""
    try:
        done = subprocess.run(
            list(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=_TOOL_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        missing.append(f"{command[0]}: {error}")
        return ""
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        missing.append(f"{' '.join(command[:2])}: {_failure_reason(lines)}")
        return ""
    return done.stdout.decode("utf-8", "replace")


def _failure_reason(lines: List[str]) -> str:
    try:
        level = int(_PARANOID.read_text())
    except (OSError, ValueError):
        level = 0
    if level > 2:
        return f"kernel.perf_event_paranoid is {level}; sysctl kernel.perf_event_paranoid=2"
    reported = [line.strip() for line in lines if line.strip() not in ("", "Error:")]
    return reported[0] if reported else "failed without output"


def _run_vmstat(missing: List[str]) -> Optional[Dict[str, int]]:
    lines = _run_tool(["vmstat", "1", "3"], missing).strip().splitlines()
    if len(lines) < 3:
        return None
    names, values = lines[1].split(), lines[-1].split()
    found = {name: int(value) for name, value in zip(names, values) if value.isdigit()}
    return {name: found[name] for name in _COLUMNS} if set(_COLUMNS) <= set(found) else None


def _cpu_percent(process: int, missing: List[str]) -> Optional[float]:
    """Returns percent of a core over one second: from top, or from top's own source as a
    fallback."""
    noted = len(missing)
    lines = _run_tool(["top", "-b", "-n", "2", "-d", "1", "-p", str(process)], missing).splitlines()
    heads = [line.split() for line in lines if "%CPU" in line]
    rows = [line.split() for line in lines if line.split()[:1] == [str(process)]]
    if not heads or not rows or len(rows[-1]) < len(heads[-1]):
        del missing[noted:]
        return _cpu_percent_from_proc(process)
    return float(rows[-1][heads[-1].index("%CPU")])


def _cpu_percent_from_proc(process: int) -> float:
    def ticks() -> int:
        fields = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return int(fields[11]) + int(fields[12])  # in user code, in the kernel

    before, start = ticks(), time.perf_counter()
    time.sleep(1)
    spent = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    return 100 * spent / (time.perf_counter() - start)


def _run_perf(
    process: int, missing: List[str], symbol: str = UNKNOWN
) -> Tuple[List[HotFunction], List[HotInstruction]]:
    """Returns the hottest functions, and the hottest instructions of `symbol`, else of the
    first."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "perf.data")
        before = len(missing)
        record = ["perf", "record", "-q", "-o", data, "-p", str(process)]
        _run_tool([*record, "--", "sleep", str(_RECORD_SECONDS)], missing)
        if len(missing) > before:
            return [], []
        report = _run_tool(["perf", "report", "-i", data, "--stdio", "--no-children"], missing)
        functions = parse_report(report)
        if not functions:
            return [], []
        name = functions[0].name.split()[-1] if symbol == UNKNOWN else symbol
        text = _run_tool(["perf", "annotate", "-i", data, "--stdio", "-s", name], missing)
    instructions = parse_annotation(text)
    if not instructions:
        missing.append("perf annotate: no instructions; install binutils for objdump")
    return functions, instructions


def parse_report(text: str) -> List[HotFunction]:
    """Parses the first lines of `perf report --stdio`: percent, command, library, symbol."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*(\d+\.\d+)%\s+\S+\s+(\S+)\s+\[[.k]\]\s+(.+?)\s*$", line)
        if match:
            found.append(HotFunction(float(match[1]), f"{match[2]} {match[3]}"))
    return found[:_FUNCTIONS]


def parse_annotation(text: str) -> List[HotInstruction]:
    """Parses the hottest lines of `perf annotate --stdio`: percent, address, instruction."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*(\d+\.\d+)\s*:\s*([0-9a-f]+:?\s+\S.*?)\s*$", line)
        if match:
            instruction = HotInstruction(float(match[1]), " ".join(match[2].split()))
            found.append(instruction)
    return sorted(found, key=lambda each: -each.percent)[:_SHOWN]
