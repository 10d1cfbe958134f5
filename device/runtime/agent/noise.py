"""What disturbs a measurement on this board: other programs, and heat that slows the clock."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Optional

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.kernel_files import read_number, read_text
from edgekit.device.runtime.agent.probe import conditions

_STAT = Path("/proc/stat")
_CPU = Path("/sys/devices/system/cpu")
_THERMAL = Path("/sys/class/thermal")
_WATCH_SECONDS = 0.3
_IDLE = (3, 4)  # fields of a line of /proc/stat: idle, waiting for a disk


@dataclass(frozen=True)
class Sample:
    """A moment: seconds since some start, CPU seconds that the usable cores were busy since then,
    those of this process, and how often or how far heat held the clock back."""

    clock: float
    busy: Optional[float]
    own: float
    held_back: Optional[int]


@dataclass(frozen=True)
class Noise:
    """The disturbance between two moments: how many of the `cores` other programs kept busy,
    whether heat held the clock back, and the load average at the end. None where the kernel does
    not tell."""

    cores: int
    others: Optional[float]
    throttled: Optional[bool]
    load: Optional[float]


class Watch:
    """What a board sees from now on beside a measurement."""

    def __init__(self) -> None:
        self._conditions, self._sample = conditions(), sample()

    def seen(self) -> Dict[str, Any]:
        """The `conditions` and `noise` of the document edgekit.runtime.bench/1."""
        noise = noise_since(self._sample)
        both = {"before": asdict(self._conditions), "after": asdict(conditions())}
        return {"conditions": both, "noise": asdict(noise)}


def watch() -> Dict[str, Any]:
    """The document edgekit.noise/1: how quiet the board is while this process does nothing."""
    watching = Watch()
    time.sleep(_WATCH_SECONDS)
    seen = watching.seen()
    governor = seen["conditions"]["after"]["governor"]
    return {"schema": "edgekit.noise/1", **seen["noise"], "governor": governor}


def sample() -> Sample:
    """Now."""
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return Sample(time.monotonic(), _busy(), own, _held_back())


def noise_since(before: Sample) -> Noise:
    """What disturbed this board since `before`."""
    now = sample()
    others = None
    seconds = now.clock - before.clock
    if before.busy is not None and now.busy is not None and seconds > 0:
        others = max(now.busy - before.busy - (now.own - before.own), 0.0) / seconds
    throttled = None
    if before.held_back is not None and now.held_back is not None:
        throttled = now.held_back > before.held_back or _cooling() > 0
    load = None
    with contextlib.suppress(OSError):
        load = os.getloadavg()[0]
    return Noise(len(features.cores()), others, throttled, load)


def _busy() -> Optional[float]:
    usable = {f"cpu{number}" for number in features.cores()}
    lines = [line.split() for line in (read_text(_STAT) or "").splitlines()]
    ticks = [[int(n) for n in words[1:9]] for words in lines if words and words[0] in usable]
    if not ticks:
        return None
    idle = sum(core[i] for core in ticks for i in _IDLE)
    return (sum(map(sum, ticks)) - idle) / os.sysconf("SC_CLK_TCK")


def _held_back() -> Optional[int]:
    """How often x86 cores were throttled so far; 0 where only the present state is told."""
    counts = [read_number(p) for p in _CPU.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    told = [count for count in counts if count is not None]
    if told:
        return int(sum(told))
    return 0 if any(_THERMAL.glob("cooling_device*")) else None


def _cooling() -> int:
    """Steps by which heat holds back the clock of cores just now."""
    steps = [
        int(read_number(device / "cur_state") or 0)
        for device in _THERMAL.glob("cooling_device*")
        if "cpufreq" in (read_text(device / "type") or "")
    ]
    return max(steps, default=0)
