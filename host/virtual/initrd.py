"""Builds the initial RAM disk: BusyBox and the kernel modules for disks and network."""

from __future__ import annotations

import lzma
import re
import stat
from dataclasses import dataclass
from pathlib import Path

_WANTED = (
    "crc32c_generic",
    "crc32c_cryptoapi",
    "virtio_mmio",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_rng",
    "ext4",
)
_FOLDERS = ("bin", "dev", "drivers", "proc", "root", "sys")


@dataclass(frozen=True)
class Entry:
    """A file, folder or device of a cpio archive; `device` is (major, minor)."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def cpio(entries: list[Entry]) -> bytes:
    """A cpio archive in the kernel's format (newc), owned by root, with zero timestamps."""
    blob = bytearray()
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        name = entry.name.encode() + b"\0"
        values = (
            number,
            entry.mode,
            0,
            0,
            1,
            0,
            len(entry.data),
            0,
            0,
            *entry.device,
            len(name),
            0,
        )
        blob += b"070701" + b"".join(b"%08x" % value for value in values) + name
        blob += b"\0" * (-len(blob) % 4)
        blob += entry.data
        blob += b"\0" * (-len(blob) % 4)
    return bytes(blob)


def initrd(busybox: bytes, init: bytes, modules: Path) -> bytes:
    """Builds the archive; `modules` is lib/modules/<version> of the kernel package."""
    drivers = _read_modules(modules)
    entries = [Entry(name, stat.S_IFDIR | 0o755) for name in _FOLDERS]
    entries.append(Entry("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)))
    entries.append(Entry("bin/busybox", stat.S_IFREG | 0o755, busybox))
    entries.append(Entry("init", stat.S_IFREG | 0o755, init))
    order = "".join(f"{name}\n" for name in drivers).encode()
    entries.append(Entry("order", stat.S_IFREG | 0o644, order))
    entries += [
        Entry(f"drivers/{name}", stat.S_IFREG | 0o644, data) for name, data in drivers.items()
    ]
    return cpio(entries)


def _read_modules(modules: Path) -> dict[str, bytes]:
    """Contents of the required modules by name, dependencies first.

    Drivers built into the kernel have no file and are skipped.
    """
    paths = {_module_name(path): path for path in modules.rglob("*.ko*")}
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in found or name not in paths:
            return
        data = _read_decompressed(paths[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in depends.group(1).decode().split(",") if depends else []:
            add(other.replace("-", "_"))
        found[name] = data

    for name in _WANTED:
        add(name)
    return found


def _module_name(path: Path) -> str:
    return path.name.partition(".ko")[0].replace("-", "_")


def _read_decompressed(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
