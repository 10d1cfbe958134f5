"""QEMU's emulators of programs, and our plugin built for the one that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.estimate.native import built, is_built

_NAMES = {"aarch64": "qemu-aarch64", "armv7l": "qemu-arm", "riscv64": "qemu-riscv64"}
_PACKAGE = "qemu-user"
_SECONDS = 30
_FOLDER = Path(__file__).parent / "plugin"
_PLUGIN = "boardtime.so"
# Tuned for this machine: most of the time of an estimate goes by in the plugin.
_FLAGS = ("-mcpu=native", "-std=gnu11", "-O3", "-g0", "-fPIC", "-shared", "-Wl,-z,lazy")


@dataclass(frozen=True)
class Emulator:
    """A qemu-user binary; `version` is (7, 2) of 7.2.22."""

    path: str
    version: tuple[int, int]

    @property
    def plugin_api(self) -> int:
        """The number of its plugin interface: QEMU takes plugins that were built for that one."""
        steps = ((9, 0), (9, 1), (9, 2))
        return 1 + sum(self.version >= step for step in steps)


def find_emulator(arch: str) -> Emulator:
    """The emulator of an architecture. InputError if it is missing or takes no plugins."""
    name = emulator_name(arch)
    path = shutil.which(name)
    if path is None:
        raise InputError(
            f"expected {name}, which executes programs of {arch}, found none; "
            f"try: apt-get install {_PACKAGE}"
        )
    if "-plugin " not in _says(path, "-h"):
        raise InputError(
            f"{path}: expected a QEMU with plugins, found one without; "
            f"Debian's has them: apt-get install {_PACKAGE}"
        )
    found = re.search(r"version (\d+)\.(\d+)", _says(path, "--version"))
    if found is None or (version := (int(found[1]), int(found[2]))) < (7, 2):
        what = f"{found[1]}.{found[2]}" if found else "no version"
        raise InputError(f"{path}: expected QEMU 7.2 or newer, found {what}; install a newer one")
    return Emulator(path, version)


def emulator_name(arch: str) -> str:
    """The program that executes those of `arch`. InputError if none is known."""
    if arch not in _NAMES:
        raise InputError(
            f"expected a board of {', '.join(_NAMES)} to estimate, found one of {arch}; "
            "measure on it: edgekit bench model"
        )
    return _NAMES[arch]


def plugin_of(emulator: Emulator) -> Path:
    """The plugin, built for an emulator if it is not in the cache."""
    return built(_FOLDER, _flags(emulator), _PLUGIN)


def has_plugin(emulator: Emulator) -> bool:
    """Whether the plugin for an emulator is in the cache."""
    return is_built(_FOLDER, _flags(emulator), _PLUGIN)


def _flags(emulator: Emulator) -> tuple[str, ...]:
    return (*_FLAGS, f"-DEK_PLUGIN_API={emulator.plugin_api}")


def _says(path: str, option: str) -> str:
    try:
        done = subprocess.run(
            [path, option],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{path}: expected a QEMU that runs, found {error}; "
            f"try: apt-get install --reinstall {_PACKAGE}"
        ) from None
    return done.stdout + done.stderr
