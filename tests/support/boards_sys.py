"""Fake /sys and /proc trees from which CPU clusters are detected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

A76, A55, A72, A53 = 0xD0B, 0xD05, 0xD08, 0xD03


@dataclass(frozen=True)
class FakeCore:
    """A core as Linux exposes it; 0 means the file is missing."""

    part: int
    max_mhz: int = 0
    capacity: int = 0
    governor: str = ""
    online: bool = True


RK3588 = (
    *[FakeCore(A55, 1800, 381, "ondemand")] * 4,
    *[FakeCore(A76, 2400, 1024, "performance")] * 2,
    *[FakeCore(A76, 2352, 1003, "performance")] * 2,  # speed bin of this chip
)
RK3399 = (*[FakeCore(A53, 1416, 0, "schedutil")] * 4, *[FakeCore(A72, 1800, 0, "schedutil")] * 2)
PI4 = (FakeCore(A72, 1800, 0, "ondemand"),) * 4


def fake_board(root: Path, cores: Sequence[FakeCore], registers: bool = True) -> Path:
    """Build a root with these cores; `registers`: the kernel exposes the main ID registers in
    /sys."""
    for number, core in enumerate(cores):
        folder = f"sys/devices/system/cpu/cpu{number}"
        files = {f"{folder}/online": f"{int(core.online)}\n"} if number else {}
        if core.max_mhz:
            files[f"{folder}/cpufreq/cpuinfo_max_freq"] = f"{core.max_mhz * 1000}\n"
        if core.capacity:
            files[f"{folder}/cpu_capacity"] = f"{core.capacity}\n"
        if core.governor:
            files[f"{folder}/cpufreq/scaling_governor"] = f"{core.governor}\n"
        if registers:
            midr = 0x410F0000 | core.part << 4
            files[f"{folder}/regs/identification/midr_el1"] = f"0x{midr:016x}\n"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    blocks = [
        f"processor\t: {n}\nCPU implementer\t: 0x41\nCPU part\t: 0x{core.part:03x}\n"
        for n, core in enumerate(cores)
    ]
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/cpuinfo").write_text("\n".join(blocks))
    return root
