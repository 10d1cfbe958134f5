"""Emulates a core's identity: a board's /proc and /sys for programs run by qemu-user.

ncnn, XNNPACK, ONNX Runtime and MNN choose kernels and tile sizes based on the core's identity and
caches, so a program that read this machine's files would run different code than on the board.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from edgekit.device.runtime.agent.cores import ARM_PARTS
from edgekit.host.common.files import locked
from edgekit.host.simulator.root import SystemRoot, roots_cache
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.core import Core

_LINE = 64
# Part numbers of 64-bit cores, and the feature names common to all of them in Linux.
_PARTS = {name.rpartition("-")[2]: int(n, 16) for n, name in ARM_PARTS.items() if n >= "0xd"}
_BASE = ("fp", "asimd", "evtstrm", "crc32", "cpuid")


@dataclass(frozen=True)
class CoreIdentity:
    """The cores of one cluster, as Linux presents them.

    midr: the main ID register of ARM cores, else 0; isa: the instruction set as in RISC-V's
    /proc/cpuinfo; features: names as in ARM's /proc/cpuinfo. Cache sizes in bytes, 0 for none; a
    cache is private to a core or shared by all.
    """

    name: str
    arch: str
    cores: int
    clock_mhz: float
    midr: int = 0
    isa: str = ""
    features: tuple[str, ...] = ()
    l1d_bytes: int = 32768
    l2_bytes: int = 0
    l2_shared: bool = True
    l3_bytes: int = 0


def identity(board: BoardProfile, midr: int, clock_mhz: float, l2_shared: bool) -> CoreIdentity:
    """The identity of a board's cores, without those of other clusters."""
    features = ("fp", *board.features) if board.arch == "aarch64" else board.features
    return CoreIdentity(
        board.name,
        board.arch,
        min(board.cores, 4),
        clock_mhz,
        midr,
        "rv64imafdc" + ("v" if "v" in board.features else ""),
        features,
        board.l1d_bytes,
        board.l2_bytes,
        l2_shared,
        board.l3_bytes,
    )


def view_of(name: str, core: Core, root: SystemRoot) -> SystemRoot:
    """A root in which programs see the core `name`, with its model's caches."""
    features = tuple(f for f in core.features if f != "crc32")
    return core_view(
        root,
        CoreIdentity(
            name,
            root.arch,
            4,
            core.clock_mhz,
            0x410F0000 | _PARTS[name] << 4 | 4 if name in _PARTS else 0,
            "rv64imafdc" + ("v" if "v" in core.features else ""),
            features=(*_BASE, *features),
            l1d_bytes=core.l1d.bytes,
            l2_bytes=core.l2.bytes,
            l2_shared=not core.l2.per_core,
            l3_bytes=core.l3.bytes if core.l3 else 0,
        ),
    )


def core_view(root: SystemRoot, core: CoreIdentity) -> SystemRoot:
    """A thin root: links to the programs and libraries of `root`, plus the core's identity
    files."""
    digest = hashlib.sha256(f"{root.folder.name} {astuple(core)}".encode()).hexdigest()[:12]
    folder = roots_cache() / f"{root.folder.name}-{core.name}-{digest}"
    with locked(roots_cache() / "views.lock"):
        if not folder.is_dir():
            work = Path(tempfile.mkdtemp(prefix=".view-", dir=folder.parent))
            try:
                _link_root(root.folder, work)
                for name, text in _identity_files(core).items():
                    path = work / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="ascii")
                work.chmod(0o755)
                work.rename(folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return SystemRoot(root.arch, folder, root.python)


def _link_root(root: Path, view: Path) -> None:
    """Links to everything in the root; both are siblings in the cache."""
    for path in root.iterdir():
        link = view / path.name
        if path.is_symlink():
            link.symlink_to(path.readlink())
        elif path.name not in ("proc", "sys"):
            link.symlink_to(Path("..") / root.name / path.name)


def _identity_files(core: CoreIdentity) -> Mapping[str, str]:
    """Files of /proc and /sys by path, without the leading slash."""
    system = "sys/devices/system/cpu"
    last = core.cores - 1
    listing = f"0-{last}\n" if last else "0\n"
    files = {"proc/cpuinfo": _cpuinfo(core), f"{system}/kernel_max": f"{last}\n"}
    files |= {f"{system}/{name}": listing for name in ("possible", "present", "online")}
    for index in range(core.cores):
        folder = f"{system}/cpu{index}"
        files |= {
            f"{folder}/topology/{n}": text for n, text in _topology_files(core, index).items()
        }
        files |= {f"{folder}/cache/{n}": text for n, text in _cache_files(core, index).items()}
        for name in ("cpuinfo_max_freq", "scaling_max_freq", "cpuinfo_min_freq"):
            files[f"{folder}/cpufreq/{name}"] = f"{core.clock_mhz * 1000:.0f}\n"
        if core.midr:
            files[f"{folder}/regs/identification/midr_el1"] = f"0x{core.midr:016x}\n"
    return files


def _cpuinfo(core: CoreIdentity) -> str:
    if core.arch == "riscv64":
        lines = [f"isa\t\t: {core.isa}", "mmu\t\t: sv39", f"uarch\t\t: {core.name}"]
        return "".join(
            "\n".join([f"processor\t: {n}", f"hart\t\t: {n}", *lines, "", ""])
            for n in range(core.cores)
        )
    lines = [
        "BogoMIPS\t: 38.40",
        f"Features\t: {' '.join(core.features)}",
        f"CPU implementer\t: 0x{core.midr >> 24:02x}",
        f"CPU architecture: {8 if core.arch == 'aarch64' else 7}",
        f"CPU variant\t: 0x{core.midr >> 20 & 15:x}",
        f"CPU part\t: 0x{core.midr >> 4 & 0xFFF:03x}",
        f"CPU revision\t: {core.midr & 15}",
    ]
    return "".join("\n".join([f"processor\t: {n}", *lines, "", ""]) for n in range(core.cores))


def _topology_files(core: CoreIdentity, index: int) -> Mapping[str, str]:
    everyone, own = f"{(1 << core.cores) - 1:x}\n", f"{1 << index:x}\n"
    return {
        "core_id": f"{index}\n",
        "physical_package_id": "0\n",
        "core_siblings": everyone,
        "core_siblings_list": f"0-{core.cores - 1}\n",
        "thread_siblings": own,
        "thread_siblings_list": f"{index}\n",
    }


def _cache_files(core: CoreIdentity, index: int) -> Mapping[str, str]:
    """The files below a core's cache/: index0 is L1 data, index1 L1 instructions."""
    levels = [(1, "Data", core.l1d_bytes, False), (1, "Instruction", core.l1d_bytes, False)]
    levels += [(2, "Unified", core.l2_bytes, core.l2_shared), (3, "Unified", core.l3_bytes, True)]
    files: dict[str, str] = {}
    for place, (level, kind, size, shared) in enumerate(levels):
        if not size:
            continue
        mask = (1 << core.cores) - 1 if shared else 1 << index
        values = {
            "level": str(level),
            "type": kind,
            "size": f"{size // 1024}K",
            "coherency_line_size": str(_LINE),
            "shared_cpu_map": f"{mask:x}",
            "shared_cpu_list": f"0-{core.cores - 1}" if shared else str(index),
        }
        files |= {f"index{place}/{name}": f"{value}\n" for name, value in values.items()}
    return files
