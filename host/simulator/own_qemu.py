"""Fetches Debian 12's QEMU user-mode emulators for machines whose own do not support plugins.

Debian 13 links its emulators statically, without plugins. As with system roots, packages are
unpacked to a cache folder and nothing is installed; the programs run with the C library they were
built for.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edgekit.host.common.files import atomic_write, locked
from edgekit.host.debian.architecture import Architecture
from edgekit.host.errors import InputError
from edgekit.host.simulator.root import make_root, roots_cache

Tell = Callable[[str], None]
MakeRoot = Callable[[Architecture, Sequence[str], Path, str | None, Tell], None]

GLIBC = "2.36"
_SUITE = "bookworm"
_PACKAGES = ("qemu-user",)
# By machine: Debian's name of the architecture, and the dynamic loader.
_MACHINES: Mapping[str, tuple[str, str]] = {
    "x86_64": ("amd64", "ld-linux-x86-64.so.2"),
    "aarch64": ("arm64", "ld-linux-aarch64.so.1"),
}
_SCRIPT = """#!/bin/sh
# Debian's {name}, with the libraries that it was built for.
exec "{libraries}/{loader}" --library-path "{libraries}" "{program}" "$@"
"""


def kept_emulator(name: str) -> Path | None:
    """The launcher of the fetched emulator `name`, if there is one."""
    path = _qemu_folder() / name
    return path if path.is_file() else None


def fetch_emulator(name: str, tell: Tell, unpack_root: MakeRoot = make_root) -> Path:
    """Like kept_emulator, but fetches it if missing. `unpack_root` fills a folder with packages.
    Raises InputError and UnreachableError."""
    if kept := kept_emulator(name):
        return kept
    machine = platform.machine()
    if machine not in _MACHINES:
        raise InputError(f"expected a machine of {', '.join(_MACHINES)}, found {machine}")
    debian, loader = _MACHINES[machine]
    libraries = f"{machine}-linux-gnu"
    with locked(roots_cache() / f"qemu-{debian}.lock"):
        root = roots_cache() / f"qemu-{debian}-{_SUITE}"
        if not root.is_dir():
            kind = Architecture(debian, _SUITE, "", libraries, name, "")
            unpack_root(kind, _PACKAGES, root, None, tell)
        path = _qemu_folder() / name
        path.parent.mkdir(exist_ok=True)
        text = _SCRIPT.format(
            name=name,
            loader=loader,
            libraries=root / "usr" / "lib" / libraries,
            program=root / "usr" / "bin" / name,
        )
        atomic_write(path, text.encode())
        path.chmod(0o755)
    return path


def _qemu_folder() -> Path:
    return roots_cache() / "qemu"
