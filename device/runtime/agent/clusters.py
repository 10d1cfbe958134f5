"""Groups a board's cores into clusters by type and speed, from /sys and /proc.

Cores of one type and similar speed form one cluster, regardless of Linux's cpufreq policies: the
four Cortex-A76 of an RK3588 have two policies, whose maximum clocks depend on the chip's binning.
They form several clusters if they share no cache: the eight X60 of a SpacemiT K1 have two L2 caches
and no L3.
"""

from __future__ import annotations

from pathlib import Path
from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.cores import ARM_LTD, ARM_PARTS, IN_ORDER, core_kinds
from edgekit.device.runtime.agent.kernel_files import read_number, read_text
from edgekit.device.runtime.agent.specs import ALIKE, ALL
from edgekit.device.runtime.record import Record

_CPU = "sys/devices/system/cpu"
_SECOND = 2  # level of caches
_ALIKE = 0.85  # minimum speed within a cluster, relative to its fastest core
_ROOT = Path("/")


class Cluster(Record):
    """Cores of one type. `name`: "all" if there is one cluster, "cluster0" and so on if all are
    equal, else "big" and "little" (with "middle" ones between). `core`: the type's name in
    profiles, "" if unknown. `cores`: core numbers; `usable`: the ones this process may run on.
    `capacity`: a core's speed relative to 1024, the board's fastest. None where the kernel does not
    report a value."""

    name: str
    core: str
    cores: Tuple[int, ...]
    usable: Tuple[int, ...]
    capacity: Optional[int]
    max_mhz: Optional[float]
    governor: Optional[str]


class _Core(Record):
    number: int
    kind: str
    capacity: Optional[float]
    max_mhz: Optional[float]
    governor: Optional[str]
    shares: str  # cores that share an L2 as last-level cache; "": with all, or none

    @property
    def speed(self) -> float:
        return self.capacity or self.max_mhz or 0.0


def find_clusters(
    root: Path = _ROOT, allowed: Optional[AbstractSet[int]] = None
) -> Tuple[Cluster, ...]:
    """Returns the board's clusters, fastest first; offline cores are left out.

    `root` contains /sys and /proc; `allowed` are the usable cores, by default this process's
    affinity.
    """
    usable = frozenset(features.cores()) if allowed is None else allowed
    groups = sorted(_group_cores(_read_cores(root, usable)), key=_speed_rank, reverse=True)
    names = _name_clusters(groups)
    return tuple(_build_cluster(name, group, usable) for name, group in zip(names, groups))


def ranges(numbers: Sequence[int]) -> str:
    """Formats core numbers like the kernel: "0-3,6"."""
    parts: List[List[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _build_cluster(name: str, group: Sequence[_Core], usable: AbstractSet[int]) -> Cluster:
    numbers = tuple(sorted(core.number for core in group))
    capacities = [core.capacity for core in group if core.capacity is not None]
    clocks = [core.max_mhz for core in group if core.max_mhz is not None]
    governors = sorted({core.governor for core in group if core.governor is not None})
    return Cluster(
        name,
        group[0].kind,
        numbers,
        tuple(number for number in numbers if number in usable),
        int(max(capacities)) if capacities else None,
        max(clocks) if clocks else None,
        ", ".join(governors) or None,
    )


def _read_cores(root: Path, usable: AbstractSet[int]) -> List[_Core]:
    kinds = core_kinds(features.cpuinfo(root / "proc/cpuinfo"))
    folders = {int(p.name[3:]): p for p in (root / _CPU).glob("cpu[0-9]*") if p.name[3:].isdigit()}
    there = folders or dict.fromkeys(kinds or usable, root / _CPU / "none")
    return [
        _read_core(number, folder, kinds)
        for number, folder in sorted(there.items())
        if read_text(folder / "online") != "0"
    ]


def _read_core(number: int, folder: Path, kinds: Dict[int, str]) -> _Core:
    clock = read_number(folder / "cpufreq/cpuinfo_max_freq")
    kind = _kind_by_register(folder) or kinds.get(number, "")
    return _Core(
        number,
        kind,
        read_number(folder / "cpu_capacity"),
        None if clock is None else clock / 1e3,
        read_text(folder / "cpufreq/scaling_governor"),
        # On x86 it would list hyperthreads.
        "" if " " in kind else _read_l2_sharing(folder / "cache"),
    )


def _read_l2_sharing(caches: Path) -> str:
    """Returns the cores that share this core's L2; "" if there is an L3."""
    found = {read_number(path / "level"): path for path in sorted(caches.glob("index[0-9]"))}
    last = max((level for level in found if level is not None), default=0)
    text = (read_text(found[last] / "shared_cpu_list") or "") if last == _SECOND else ""
    return "" if text.isdigit() else text


def _kind_by_register(folder: Path) -> str:
    """Decodes the core type from the main ID register, shown by 64-bit ARM kernels; "" if
    unknown."""
    try:
        midr = int(read_text(folder / "regs/identification/midr_el1") or "", 16)
    except ValueError:
        return ""
    maker, part = f"0x{midr >> 24 & 255:02x}", f"0x{midr >> 4 & 0xFFF:03x}"
    return ARM_PARTS.get(part, "") if maker == ARM_LTD else ""


def _group_cores(cores: Sequence[_Core]) -> List[List[_Core]]:
    """Groups cores of the same type and similar speed."""
    groups: List[List[_Core]] = []
    for core in sorted(cores, key=lambda c: (c.kind, c.shares, -c.speed, c.number)):
        first = groups[-1][0] if groups else None
        if first and _same_kind_and_cache(core, first) and core.speed >= _ALIKE * first.speed:
            groups[-1].append(core)
        else:
            groups.append([core])
    return groups


def _same_kind_and_cache(core: _Core, other: _Core) -> bool:
    return (core.kind, core.shares) == (other.kind, other.shares)


def _speed_rank(group: Sequence[_Core]) -> Tuple[float, bool, float, int]:
    """Sort key for a cluster's speed: the kernel's capacity, else in-order core types rank
    lower."""
    first = group[0]
    return (first.capacity or 0.0, first.kind not in IN_ORDER, first.speed, -first.number)


def _name_clusters(groups: Sequence[Sequence[_Core]]) -> Tuple[str, ...]:
    """Names groups that are ordered from fastest to slowest."""
    count = len(groups)
    if count < 2:
        return (ALL,) * count
    first, last = groups[0][0], groups[-1][0]
    if first.kind == last.kind and last.speed >= _ALIKE * first.speed:
        return tuple(f"{ALIKE}{number}" for number in range(count))
    middle = tuple(f"middle{i}" for i in range(1, count - 1)) if count > 3 else ("middle",)
    return ("big", *middle[: count - 2], "little")
