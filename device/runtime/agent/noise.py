"""Disturbances of a measurement on this board: other programs, and thermal throttling."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.kernel_files import read_number, read_text
from edgekit.device.runtime.agent.probe import conditions
from edgekit.device.runtime.record import Record, asdict

_WATCH_SECONDS = 0.3
_IDLE = (3, 4)  # fields of a line of /proc/stat: idle, waiting for a disk


class Sources(Record):
    """What a snapshot is read from: the kernel's files of CPU times, cores and thermal zones, the
    numbers of the usable cores, and a clock in seconds."""

    stat: Path = Path("/proc/stat")
    cpu: Path = Path("/sys/devices/system/cpu")
    thermal: Path = Path("/sys/class/thermal")
    cores: Callable[[], List[int]] = features.cores
    clock: Callable[[], float] = time.monotonic


BOARD = Sources()


class LoadSnapshot(Record):
    """A snapshot: a monotonic clock in seconds, CPU seconds used so far on the usable cores and by
    this process, and the number or level of throttling events."""

    clock: float
    busy: Optional[float]
    own: float
    throttle_count: Optional[int]


class Noise(Record):
    """The disturbance between two snapshots: the number of `cores` kept busy by other programs,
    thermal throttling, and the load average at the end. None where the kernel does not report
    it."""

    cores: int
    others: Optional[float]
    throttled: Optional[bool]
    load: Optional[float]


class NoiseMonitor:
    """Monitors the board during a measurement, from construction on."""

    def __init__(self) -> None:
        self._conditions, self._sample = conditions(), sample()

    def seen(self) -> Dict[str, Any]:
        """Returns `conditions` and `noise` of the document edgekit.runtime.bench/1."""
        noise = noise_since(self._sample)
        both = {"before": asdict(self._conditions), "after": asdict(conditions())}
        return {"conditions": both, "noise": asdict(noise)}


def watch() -> Dict[str, Any]:
    """Returns the document edgekit.noise/1: the board's noise while this process is idle."""
    watching = NoiseMonitor()
    time.sleep(_WATCH_SECONDS)
    seen = watching.seen()
    governor = seen["conditions"]["after"]["governor"]
    return {"schema": "edgekit.noise/1", **seen["noise"], "governor": governor}


def sample(sources: Sources = BOARD) -> LoadSnapshot:
    """Takes a snapshot."""
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return LoadSnapshot(sources.clock(), _busy_seconds(sources), own, _throttle_count(sources))


def noise_since(before: LoadSnapshot, sources: Sources = BOARD) -> Noise:
    """Returns the disturbance of this board since `before`."""
    now = sample(sources)
    others = None
    seconds = now.clock - before.clock
    if before.busy is not None and now.busy is not None and seconds > 0:
        others = max(now.busy - before.busy - (now.own - before.own), 0.0) / seconds
    throttled = None
    if before.throttle_count is not None and now.throttle_count is not None:
        throttled = now.throttle_count > before.throttle_count or _throttling_level(sources) > 0
    load = None
    with contextlib.suppress(OSError):
        load = os.getloadavg()[0]
    return Noise(len(sources.cores()), others, throttled, load)


def _busy_seconds(sources: Sources) -> Optional[float]:
    usable = {f"cpu{number}" for number in sources.cores()}
    lines = [line.split() for line in (read_text(sources.stat) or "").splitlines()]
    ticks = [[int(n) for n in words[1:9]] for words in lines if words and words[0] in usable]
    if not ticks:
        return None
    idle = sum(core[i] for core in ticks for i in _IDLE)
    return (sum(map(sum, ticks)) - idle) / os.sysconf("SC_CLK_TCK")


def _throttle_count(sources: Sources) -> Optional[int]:
    """Returns x86's throttle count so far; 0 where only the present throttling state is known."""
    files = sources.cpu.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    counts = [read_number(path) for path in files]
    known = [count for count in counts if count is not None]
    if known:
        return int(sum(known))
    return 0 if any(sources.thermal.glob("cooling_device*")) else None


def _throttling_level(sources: Sources) -> int:
    """Returns the highest current throttling level of the cores' clocks."""
    steps = [
        int(read_number(device / "cur_state") or 0)
        for device in sources.thermal.glob("cooling_device*")
        if "cpufreq" in (read_text(device / "type") or "")
    ]
    return max(steps, default=0)
