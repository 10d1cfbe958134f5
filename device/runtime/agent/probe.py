"""Probes a board: machine, CPU, memory, disk, interpreter, clock, and clock speed settings."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from pathlib import Path
from typing import Callable, Optional, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.clusters import Cluster, find_clusters
from edgekit.device.runtime.agent.code_folder import another_folder, find_trouble
from edgekit.device.runtime.agent.cores import core_names
from edgekit.device.runtime.agent.fit import BoardFacts
from edgekit.device.runtime.agent.kernel_files import read_number, read_text
from edgekit.device.runtime.record import Record
from edgekit.device.version import VERSION

_CPU = Path("/sys/devices/system/cpu")
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_THERMAL = Path("/sys/class/thermal")
_DEVICE_TREE = Path("/proc/device-tree")
_LONGEST_PROPERTY = 1024


class Probe(Record):
    """A board's properties; None where the kernel does not report them. `clock` is seconds since
    1970.

    `board` and `compatible` are the device tree's model and its names for board and chip, most
    specific first; both are empty without a device tree. `core_names` are the core types, as named
    in profiles; `perf_event_paranoid` limits an ordinary user's access to perf; `ssh_keygen`:
    signatures can be verified; `clusters` are its cores by type, fastest first, empty if the
    runtime does not report them. `folder` holds the releases, or will; `folder_trouble` says why it
    cannot, and then `other_folder` names one that can, empty if there is none. `c_library` is as
    `c_library()` returns it.
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
    folder: str = ""
    folder_trouble: str = ""
    other_folder: str = ""
    c_library: str = ""


class Conditions(Record):
    """The current settings that determine a core's speed; None where not readable."""

    governor: Optional[str]
    frequency_mhz: Optional[float]
    temperature_c: Optional[float]


def probe(root: Path) -> Probe:
    """Probes this board; `root` (or its nearest existing parent) selects the disk.

    ImportError if Python lacks a module that running a model needs.
    """
    import shutil  # running a model does not need it
    import subprocess  # noqa: F401, the health check needs it

    memory = features.memory_bytes()
    paranoid = read_number(_PARANOID)
    folder = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    trouble = find_trouble(folder)
    return Probe(
        machine=features.machine(),
        board=" ".join(_read_strings(_DEVICE_TREE / "model")),
        compatible=_read_strings(_DEVICE_TREE / "compatible"),
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
        folder=str(root.absolute()),
        folder_trouble=trouble,
        other_folder=another_folder() if trouble else "",
        c_library=c_library(),
    )


def c_library(
    confstr: Callable[[str], Optional[str]] = os.confstr,
    load: Callable[[str], object] = ctypes.CDLL,
    loaders: Path = Path("/lib"),
) -> str:
    """Returns the C library, "glibc 2.36"; "musl" or "another" if it cannot load libraries made for
    glibc; "" if it can (gcompat)."""
    try:
        return confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # other libraries do not know the name
        pass
    try:
        load("libc.so.6")
    except OSError:
        return "musl" if any(loaders.glob("ld-musl-*")) else "another"
    return ""


def board_facts() -> BoardFacts:
    """Returns the facts that decide whether this board can run a model."""
    stack = resource.getrlimit(resource.RLIMIT_STACK)[1]
    return BoardFacts(
        features.machine(),
        features.features(),
        features.vlen_bits(),
        features.memory_bytes().available,
        None if stack == resource.RLIM_INFINITY else stack,
    )


def conditions() -> Conditions:
    """Returns governor and frequency of the first usable core, and the hottest zone's
    temperature."""
    folder = _CPU / f"cpu{features.cores()[0]}" / "cpufreq"
    frequency = read_number(folder / "scaling_cur_freq")
    zones = [read_number(zone / "temp") for zone in _THERMAL.glob("thermal_zone*")]
    hottest = max((t for t in zones if t is not None), default=None)
    return Conditions(
        read_text(folder / "scaling_governor"),
        None if frequency is None else frequency / 1e3,
        None if hottest is None else hottest / 1e3,
    )


def _read_strings(path: Path) -> Tuple[str, ...]:
    """Returns the strings of a device tree property; none if it is not readable."""
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_PROPERTY).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(part for part in text.split("\0") if part)
