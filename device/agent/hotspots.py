"""What a running kernel waits for, and where it spends its time: vmstat, top and perf of the board.

Every tool may be missing or forbidden; then the report says which package or setting it needs, and
holds the rest.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

_TOOL_SECONDS = 60.0
_RECORD_SECONDS = 2
_SHOWN = 12  # instructions, hottest first
_FUNCTIONS = 5
_WAITING, _BUSY = 20.0, 80.0  # percent waiting for I/O; of a core
_FULL, _CACHED = 0.6, 1.5  # of the memory's rate: bound by it; above, the data come from a cache
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_PACKAGES = {"vmstat": "procps", "top": "procps", "perf": "linux-perf (Debian) or linux-tools"}


@dataclass(frozen=True)
class Bottleneck:
    """cpu, memory or io, and the figures that say so."""

    kind: str
    why: str


@dataclass(frozen=True)
class HotFunction:
    """Share of the samples in percent."""

    percent: float
    name: str


@dataclass(frozen=True)
class HotInstruction:
    """Share of the function's samples in percent, and the instruction as perf shows it."""

    percent: float
    text: str


@dataclass(frozen=True)
class Hotspots:
    """What was found; `missing`: what each tool that is not there or not allowed would need."""

    bottleneck: Bottleneck
    functions: Tuple[HotFunction, ...]
    instructions: Tuple[HotInstruction, ...]
    missing: Tuple[str, ...]


def watch(work: Callable[[], object], share: float) -> Hotspots:
    """Watches `work` repeat in a process of its own; share: its part of the memory's rate."""
    missing: List[str] = []
    with _repeating(work) as process:
        waiting = _vmstat(missing)
        busy = _top(process, missing)
        functions, instructions = _perf(process, missing)
    bottleneck = classify(waiting, busy, share)
    return Hotspots(bottleneck, tuple(functions), tuple(instructions), tuple(missing))


def classify(waiting: Optional[Dict[str, int]], busy: Optional[float], share: float) -> Bottleneck:
    """waiting: the columns of vmstat; busy: percent of a core, by top; None: not known."""
    facts = [f"{share:.0%} of the memory's rate"]
    if busy is not None:
        facts.append(f"{busy:.0f} % of a core")
    if waiting is not None:
        facts.append(f"{waiting['wa']} % waiting for I/O, {waiting['b']} blocked")
        if waiting["si"] or waiting["so"]:
            return Bottleneck("memory", "swapping: " + ", ".join(facts))
        if waiting["wa"] >= _WAITING:
            return Bottleneck("io", ", ".join(facts))
    if _FULL <= share <= _CACHED:
        return Bottleneck("memory", ", ".join(facts))
    if busy is not None and busy < _BUSY:
        return Bottleneck("cpu", "other programs take the cores: " + ", ".join(facts))
    return Bottleneck("cpu", ", ".join(facts))


@contextmanager
def _repeating(work: Callable[[], object]) -> Iterator[int]:
    """The id of a process that does nothing but the work."""
    process = os.fork()
    if process == 0:
        try:
            while True:
                work()
        finally:
            os._exit(1)
    try:
        time.sleep(0.2)
        yield process
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _run(command: Sequence[str], missing: List[str]) -> str:
    """What a tool prints; nothing where it is missing or fails, which is noted."""
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
        missing.append(f"{' '.join(command[:2])}: {_reason(lines)}")
        return ""
    return done.stdout.decode("utf-8", "replace")


def _reason(lines: List[str]) -> str:
    try:
        level = int(_PARANOID.read_text())
    except (OSError, ValueError):
        level = 0
    if level > 2:
        return f"kernel.perf_event_paranoid is {level}; sysctl kernel.perf_event_paranoid=2"
    return lines[-1] if lines else "failed without a word"


def _vmstat(missing: List[str]) -> Optional[Dict[str, int]]:
    lines = _run(["vmstat", "1", "3"], missing).strip().splitlines()
    if len(lines) < 3:
        return None
    names, values = lines[1].split(), lines[-1].split()
    found = {name: int(value) for name, value in zip(names, values) if value.isdigit()}
    return found if {"wa", "b", "si", "so"} <= set(found) else None


def _top(process: int, missing: List[str]) -> Optional[float]:
    """Percent of a core over one second: by top, or by what top reads where it cannot say."""
    noted = len(missing)
    lines = _run(["top", "-b", "-n", "2", "-d", "1", "-p", str(process)], missing).splitlines()
    heads = [line.split() for line in lines if "%CPU" in line]
    rows = [line.split() for line in lines if line.split()[:1] == [str(process)]]
    if not heads or not rows or len(rows[-1]) < len(heads[-1]):
        del missing[noted:]
        return _busy(process)
    return float(rows[-1][heads[-1].index("%CPU")])


def _busy(process: int) -> float:
    def ticks() -> int:
        fields = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return int(fields[11]) + int(fields[12])  # in user code, in the kernel

    before, start = ticks(), time.perf_counter()
    time.sleep(1)
    spent = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    return 100 * spent / (time.perf_counter() - start)


def _perf(process: int, missing: List[str]) -> Tuple[List[HotFunction], List[HotInstruction]]:
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "perf.data")
        before = len(missing)
        record = ["perf", "record", "-q", "-o", data, "-p", str(process)]
        _run([*record, "--", "sleep", str(_RECORD_SECONDS)], missing)
        if len(missing) > before:
            return [], []
        report = _run(["perf", "report", "-i", data, "--stdio", "--no-children"], missing)
        functions = parse_report(report)
        if not functions:
            return [], []
        symbol = functions[0].name.split()[-1]
        text = _run(["perf", "annotate", "-i", data, "--stdio", "-s", symbol], missing)
    instructions = parse_annotation(text)
    if not instructions:
        missing.append("perf annotate: no instructions; install binutils for objdump")
    return functions, instructions


def parse_report(text: str) -> List[HotFunction]:
    """The first lines of `perf report --stdio`: percent, command, library, symbol."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*(\d+\.\d+)%\s+\S+\s+(\S+)\s+\[[.k]\]\s+(.+?)\s*$", line)
        if match:
            found.append(HotFunction(float(match[1]), f"{match[2]} {match[3]}"))
    return found[:_FUNCTIONS]


def parse_annotation(text: str) -> List[HotInstruction]:
    """The hottest lines of `perf annotate --stdio`: percent, address, instruction."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\s*(\d+\.\d+)\s*:\s*([0-9a-f]+:?\s+\S.*?)\s*$", line)
        if match:
            instruction = HotInstruction(float(match[1]), " ".join(match[2].split()))
            found.append(instruction)
    return sorted(found, key=lambda each: -each.percent)[:_SHOWN]
