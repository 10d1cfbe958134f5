"""What a board is: machine, CPU, memory, disk, interpreter, clock, and how fast it is set."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.clusters import Cluster, find_clusters
from edgekit.device.runtime.agent.cores import core_names
from edgekit.device.runtime.agent.fit import BoardFacts
from edgekit.device.runtime.agent.kernel_files import read_number, read_text
from edgekit.device.version import VERSION

_CPU = Path("/sys/devices/system/cpu")
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_THERMAL = Path("/sys/class/thermal")
_DEVICE_TREE = Path("/proc/device-tree")
_LONGEST_PROPERTY = 1024


@dataclass(frozen=True)
class Probe:
    """One board; None where the kernel does not tell. `clock` is seconds since 1970.

    `board` is what its device tree calls it, `compatible` its names there for board and chip, the
    most precise one first, both empty where there is none. `core_names` are the kinds of core, as
    profiles name them; `perf_event_paranoid` says what of perf an ordinary user may use;
    `ssh_keygen` whether there is one to verify signatures with; `clusters` its cores by kind, the
    fastest first, empty of a runtime that does not tell.
    """

    machine: str
    board: str
    compatible: Tuple[str, ...]
    core_names: Tuple[str, ...]
    features: Tuple[str, ...]
    vlen_bits: Optional[int]
    cores: int
    memory_bytes: Optional[int]
    available_bytes: Optional[int]
    disk_free_bytes: int
    python: str
    kernel: str
    clock: float
    perf_event_paranoid: Optional[int]
    ssh_keygen: bool
    runtime_version: str
    clusters: Tuple[Cluster, ...] = ()


@dataclass(frozen=True)
class Conditions:
    """What decides how fast a core runs just now; None where it is not readable."""

    governor: Optional[str]
    frequency_mhz: Optional[float]
    temperature_c: Optional[float]


def probe(root: Path) -> Probe:
    """Reads this board; `root` (or its nearest existing parent) says which disk counts."""
    import shutil  # whoever only runs a model does without

    memory = features.memory_bytes()
    paranoid = read_number(_PARANOID)
    folder = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    return Probe(
        machine=features.machine(),
        board=" ".join(_strings(_DEVICE_TREE / "model")),
        compatible=_strings(_DEVICE_TREE / "compatible"),
        core_names=core_names(features.cpuinfo()),
        features=tuple(sorted(features.features())),
        vlen_bits=features.vlen_bits(),
        cores=len(features.cores()),
        memory_bytes=memory.total,
        available_bytes=memory.available,
        disk_free_bytes=shutil.disk_usage(folder).free,
        python=".".join(str(n) for n in sys.version_info[:3]),
        kernel=os.uname().release,
        clock=time.time(),
        perf_event_paranoid=None if paranoid is None else int(paranoid),
        ssh_keygen=shutil.which("ssh-keygen") is not None,
        runtime_version=VERSION,
        clusters=find_clusters(),
    )


def board_facts() -> BoardFacts:
    """What decides whether this board can run a model."""
    return BoardFacts(
        features.machine(),
        features.features(),
        features.vlen_bits(),
        features.memory_bytes().available,
    )


def conditions() -> Conditions:
    """Governor and frequency of the first usable core, temperature of the hottest zone."""
    folder = _CPU / f"cpu{features.cores()[0]}" / "cpufreq"
    frequency = read_number(folder / "scaling_cur_freq")
    zones = [read_number(zone / "temp") for zone in _THERMAL.glob("thermal_zone*")]
    hottest = max((t for t in zones if t is not None), default=None)
    return Conditions(
        read_text(folder / "scaling_governor"),
        None if frequency is None else frequency / 1e3,
        None if hottest is None else hottest / 1e3,
    )


def _strings(path: Path) -> Tuple[str, ...]:
    """The strings of a property of the device tree; none where it is not readable."""
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_PROPERTY).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(part for part in text.split("\0") if part)
