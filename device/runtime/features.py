"""CPU capabilities: machine name, instruction set extensions, RVV register length."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import re
import struct
from pathlib import Path
from typing import Callable, Dict, FrozenSet, List, Optional

from edgekit.device.runtime.record import Record

_CPUINFO = Path("/proc/cpuinfo")
_AT_HWCAP, _AT_HWCAP2 = 16, 26
READ_VLENB = (0xC2202573, 0x00008067)  # csrr a0, vlenb; ret

# Bit numbers of asm/hwcap.h, named as in /proc/cpuinfo. The auxiliary vector describes what this
# process may use; under emulation, /proc/cpuinfo may describe another CPU.
_AARCH64 = {
    "fp": 0,
    "asimd": 1,
    "aes": 3,
    "pmull": 4,
    "sha1": 5,
    "sha2": 6,
    "crc32": 7,
    "atomics": 8,
    "fphp": 9,
    "asimdhp": 10,
    "asimdrdm": 12,
    "fcma": 14,
    "lrcpc": 15,
    "asimddp": 20,
    "sve": 22,
    "asimdfhm": 23,
}
_AARCH64_2 = {"sve2": 1, "i8mm": 13, "bf16": 14, "sme": 23}
_ARM = {
    "half": 1,
    "thumb": 2,
    "vfp": 6,
    "edsp": 7,
    "neon": 12,
    "vfpv3": 13,
    "tls": 15,
    "vfpv4": 16,
    "idiva": 17,
    "idivt": 18,
    "vfpd32": 19,
    "fphp": 22,
    "asimdhp": 23,
    "asimddp": 24,
    "i8mm": 27,
}
_AMX = frozenset(("amx_tile", "amx_int8", "amx_bf16", "amx_fp16", "amx_complex"))
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # of x86-64


def machine() -> str:
    """Returns this process's architecture; armv7l for a 32-bit process on a 64-bit ARM."""
    return machine_of(os.uname().machine, struct.calcsize("P"))


def machine_of(kernel: str, pointer_bytes: int) -> str:
    """As `machine`, for a process with pointers of that size under a kernel of that name."""
    return "armv7l" if kernel in ("aarch64", "armv8l") and pointer_bytes == 4 else kernel


@functools.lru_cache(maxsize=None)
def features() -> FrozenSet[str]:
    """Returns the features common to all cores, by their /proc/cpuinfo names."""
    arch = machine()
    if arch == "aarch64":
        return _decode_flags(_read_auxv(_AT_HWCAP), _AARCH64) | _decode_flags(
            _read_auxv(_AT_HWCAP2), _AARCH64_2
        )
    if arch.startswith("arm"):
        return _decode_flags(_read_auxv(_AT_HWCAP), _ARM)
    if arch.startswith("riscv"):
        bits = _read_auxv(_AT_HWCAP)
        letters = (chr(ord("a") + i) for i in range(26) if bits >> i & 1)
        return frozenset(letters) | parse_riscv_isa(cpuinfo())
    return usable_flags(cpuinfo())


def _may_use_tiles() -> bool:
    """Requests permission to use AMX tile registers, which Linux saves only for permitted
    processes."""
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def usable_flags(
    cpuinfo: str, may_use_tiles: Callable[[], bool] = _may_use_tiles
) -> FrozenSet[str]:
    """Returns the flags that all cores share; those of AMX only if `may_use_tiles()` is true."""
    found = parse_flags(cpuinfo)
    return found if "amx_tile" not in found or may_use_tiles() else found - _AMX


def parse_flags(cpuinfo: str) -> FrozenSet[str]:
    """Returns the words of `flags` or `Features` lines that all cores share."""
    cores = [
        frozenset(line.partition(":")[2].split())
        for line in cpuinfo.splitlines()
        if line.partition(":")[0].strip() in ("flags", "Features")
    ]
    return frozenset.intersection(*cores) if cores else frozenset()


def parse_riscv_isa(cpuinfo: str) -> FrozenSet[str]:
    """Returns the multi-letter extensions (zba, zbb, ...) of the `isa` lines that all harts
    share."""
    harts = [
        frozenset(re.split("_", line.partition(":")[2].strip())[1:])
        for line in cpuinfo.splitlines()
        if line.partition(":")[0].strip() == "isa"
    ]
    return frozenset.intersection(*harts) if harts else frozenset()


def vlen_bits() -> Optional[int]:
    """Returns this CPU's RVV register length; None if it has none or it cannot be determined."""
    if not machine().startswith("riscv") or "v" not in features():
        return None
    return _read_vlenb() * 8 or None


def _read_vlenb() -> int:
    """Runs READ_VLENB, since no kernel file reports the length; returns 0 if refused."""
    code = struct.pack("<II", *READ_VLENB)
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        return 0
    return int(ctypes.CFUNCTYPE(ctypes.c_ulong)(address)())


def _read_auxv(key: int) -> int:
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = (ctypes.c_ulong,), ctypes.c_ulong
    return int(getauxval(key))


def _decode_flags(bits: int, names: Dict[str, int]) -> FrozenSet[str]:
    return frozenset(name for name, bit in names.items() if bits >> bit & 1)


def cpuinfo(file: Path = _CPUINFO) -> str:
    """Returns /proc/cpuinfo; empty if it is not readable."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class MemoryBytes(Record):
    """Physical memory, total and available; None if the kernel does not report it."""

    total: Optional[int]
    available: Optional[int]


def memory_bytes() -> MemoryBytes:
    """Reads /proc/meminfo."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return MemoryBytes(None, None)
    words = [line.split() for line in lines]
    kib = {w[0].rstrip(":"): int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}
    total, available = kib.get("MemTotal"), kib.get("MemAvailable")
    return MemoryBytes(total and total * 1024, available and available * 1024)


def cpu_model(file: Path = _CPUINFO) -> str:
    """Returns vendor, family and model of an x86 CPU, since a virtual machine may hide its name; ""
    for other CPUs, whose cores have names. `file` has the form of /proc/cpuinfo."""
    known: Dict[str, str] = {}
    for line in cpuinfo(file).splitlines():
        key, _, value = line.partition(":")
        known.setdefault(key.strip(), value.strip())
    if "vendor_id" not in known or "cpu family" not in known or "model" not in known:
        return ""
    return f"{known['vendor_id']} family {known['cpu family']} model {known['model']}"


def cores() -> List[int]:
    """Returns the numbers of the cores this process may run on."""
    return sorted(os.sched_getaffinity(0))
