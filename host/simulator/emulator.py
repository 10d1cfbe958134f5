"""Finds QEMU's user-mode emulators, and builds our plugin for the installed one."""

from __future__ import annotations

import functools
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.simulator.native import Build, built, is_built
from edgekit.host.simulator.own_qemu import GLIBC, fetch_emulator, kept_emulator

Tell = Callable[[str], None]

_NAMES = {"aarch64": "qemu-aarch64", "armv7l": "qemu-arm", "riscv64": "qemu-riscv64"}
_PACKAGE = "qemu-user"
_SECONDS = 30
_FOLDER = Path(__file__).parent / "plugin"
_PLUGIN = "boardtime.so"
# RISC-V half precision, scalar and vector: CPU options of recent QEMU versions and of older ones.
# In 7.2 the first option includes the second.
HALF = "zfh=true,zvfh=true"
_OLDER_HALF = ("zfh=true,x-zvfh=true", "Zfh=true,x-zvfh=true", "Zfh=true")
# Tuned for this machine, since an estimate spends most of its time in the plugin.
_FLAGS = ("-mcpu=native", "-std=gnu11", "-O3", "-g0", "-fPIC")
# Without the compiler's own library, which the plugin does not use and which takes longer to build.
_LINK_FLAGS = ("-mcpu=native", "-O3", "-shared", "-Wl,-z,lazy", "-rtlib=none")


@dataclass(frozen=True)
class Emulator:
    """A qemu-user binary; `version` is (7, 2) for 7.2.22. `fetched`: it comes with its own C
    library."""

    path: str
    version: tuple[int, int]
    fetched: bool = False

    @property
    def plugin_api(self) -> int:
        """The version of its plugin interface; QEMU only loads plugins built for that version."""
        steps = ((9, 0), (9, 1), (9, 2))
        return 1 + sum(self.version >= step for step in steps)


def find_emulator(
    arch: str,
    tell: Tell | None = None,
    fetch: Callable[[str, Tell], Path] = fetch_emulator,
) -> Emulator:
    """Finds the emulator of an architecture: this machine's, else a fetched one; fetches it with
    `fetch` if `tell` is given. InputError if there is none that supports plugins."""
    name = emulator_name(arch)
    try:
        return _check_emulator(name, arch, shutil.which(name))
    except InputError as error:
        kept = kept_emulator(name)
        if kept is None and tell:
            try:
                kept = fetch(name, tell)
            except InputError:  # it cannot be fetched
                raise error from None
        if kept is None:
            raise
    found = _check_emulator(name, arch, str(kept))
    return Emulator(found.path, found.version, fetched=True)


def _check_emulator(name: str, arch: str, path: str | None) -> Emulator:
    if path is None:
        raise InputError(
            f"expected {name}, which executes programs of {arch}, found none; "
            f"try: apt-get install {_PACKAGE}"
        )
    if "-plugin " not in _program_output(path, "-h"):
        raise InputError(
            f"{path}: expected a QEMU with plugins, found one without, as Debian 13's "
            "is; install one that has them, as Debian 12's does"
        )
    found = re.search(r"version (\d+)\.(\d+)", _program_output(path, "--version"))
    if found is None or (version := (int(found[1]), int(found[2]))) < (7, 2):
        what = f"{found[1]}.{found[2]}" if found else "no version"
        raise InputError(f"{path}: expected QEMU 7.2 or newer, found {what}; install a newer one")
    return Emulator(path, version)


def emulator_name(arch: str) -> str:
    """The program that executes `arch` binaries. InputError if none is known."""
    if arch not in _NAMES:
        raise InputError(
            f"expected a board of {', '.join(_NAMES)} to estimate, found one of {arch}; "
            "measure on it: edgekit bench model"
        )
    return _NAMES[arch]


def plugin_of(emulator: Emulator) -> Path:
    """The plugin for an emulator, built if it is not in the cache."""
    return built(_plugin_build(emulator))


def has_plugin(emulator: Emulator) -> bool:
    """Whether the plugin for an emulator is in the cache."""
    return is_built(_plugin_build(emulator))


def plugin_sources() -> list[Path]:
    """The files that the plugin is built from."""
    return Build(_FOLDER, _FLAGS, _LINK_FLAGS, _PLUGIN).files()


def _plugin_build(emulator: Emulator) -> Build:
    target = ("-target", f"{platform.machine()}-linux-gnu.{GLIBC}") if emulator.fetched else ()
    flags = (*_FLAGS, *target, f"-DEK_PLUGIN_API={emulator.plugin_api}")
    return Build(_FOLDER, flags, (*_LINK_FLAGS, *target), _PLUGIN)


@functools.cache
def spelled(path: str, cpu: str) -> str:
    """The CPU option `cpu`, with its properties named as in `HALF`, in this emulator's spelling."""
    if HALF not in cpu:
        return cpu
    each = [cpu.replace(HALF, switches) for switches in (HALF, *_OLDER_HALF)]
    # QEMU reports unknown properties before it opens the program, here a nonexistent one
    known = (
        c
        for c in each
        if not re.search("Property .* not found", _program_output(path, "-cpu", c, "/"))
    )
    return next(known, cpu)


def _program_output(path: str, *options: str) -> str:
    try:
        done = subprocess.run(
            [path, *options],
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
