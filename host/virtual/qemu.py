"""Builds QEMU command lines and starts QEMU as a detached process."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.debian.architecture import Architecture
from edgekit.host.debian.tools import BoardToolError, find_tools

_PREPARE_SECONDS = 1800  # a minute of CPU time; the host may be busy
_PREPARED = b"edgekit: prepared"


@dataclass(frozen=True)
class Drive:
    """A disk: a raw file, or a URL that QEMU can open (nbd:unix:PATH).

    With `keep`, writes go to it; otherwise they go to a temporary file and are discarded.
    """

    source: str
    keep: bool = True
    read_only: bool = False


@dataclass(frozen=True)
class QemuMachine:
    """A machine, without the sockets for connecting to a running one."""

    architecture: Architecture
    kernel: Path
    initrd: Path
    root: Drive
    home: Drive | None = None
    cpu: str | None = None
    memory_mib: int = 512
    cores: int = 1
    counting: bool = False


_DEFAULT_CPU = {"arm64": "cortex-a57", "armhf": "cortex-a7", "riscv64": "rv64"}


def machine_arguments(machine: QemuMachine, extra_kernel: str = "") -> list[str]:
    """QEMU's arguments for the machine itself, which a saved state depends on, and the disks."""
    architecture = machine.architecture
    kernel = f"console={architecture.console} quiet loglevel=3 panic=-1 {extra_kernel}".strip()
    arguments = ["-M", "virt", "-cpu", machine.cpu or _DEFAULT_CPU[architecture.name]]
    arguments += ["-smp", str(machine.cores), "-m", str(machine.memory_mib)]
    arguments += ["-nodefaults", "-display", "none", "-no-reboot"]
    arguments += ["-kernel", str(machine.kernel), "-initrd", str(machine.initrd)]
    arguments += ["-append", kernel]
    for name, drive in (("root", machine.root), ("home", machine.home)):
        if drive is not None:
            arguments += ["-drive", _drive_option(f"{name}-disk", drive)]
            arguments += ["-device", f"virtio-blk-device,drive={name}-disk,serial={name}"]
    arguments += ["-device", "virtio-rng-device"]
    if machine.counting:
        # One instruction is one nanosecond of guest time; idle time passes in real time.
        arguments += ["-icount", "shift=0,sleep=on"]
    return arguments


def _drive_option(name: str, drive: Drive) -> str:
    flag = "readonly=on" if drive.read_only else f"snapshot={'off' if drive.keep else 'on'}"
    source = drive.source.replace(",", ",,")
    return f"if=none,id={name},file={source},format=raw,{flag}"


def connection_arguments(control: Path, *, incoming: bool, outgoing: bool = False) -> list[str]:
    """Arguments for access to a running board: SSH and console on loopback ports chosen by QEMU.

    Unless `outgoing`, the guest has no outgoing network (`restrict=on`). `control` is a private
    folder for the sockets.
    """
    restrict = "off" if outgoing else "on"
    arguments = ["-netdev", f"user,id=net,restrict={restrict},hostfwd=tcp:127.0.0.1:0-:22"]
    arguments += ["-device", "virtio-net-device,netdev=net"]
    # Without nodelay each console response is delayed by 40 ms.
    console = "socket,id=console,host=127.0.0.1,port=0,server=on,wait=off,nodelay=on"
    arguments += ["-chardev", console]
    arguments += ["-serial", "chardev:console"]
    arguments += ["-chardev", f"socket,id=root,path={control / 'root'},server=on,wait=off"]
    arguments += ["-device", "virtio-serial-device", "-device", "virtserialport,chardev=root"]
    arguments += ["-qmp", f"unix:{control / 'qmp'},server=on,wait=off"]
    arguments += ["-qtest", f"unix:{control / 'bus'},server=on,wait=off", "-qtest-log", "none"]
    if incoming:
        arguments += ["-S", "-incoming", "defer"]
    return arguments


def find_qemu(architecture: Architecture) -> str:
    """QEMU's path; InputError names the package if it is missing."""
    return find_tools([architecture.qemu])[architecture.qemu]


def start_process(command: list[str], log: Path) -> int:
    """Starts a program in its own session, so that it outlives us; returns its PID."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGTERM],
    )


def prepare_image(machine: QemuMachine, log: Path) -> None:
    """Boots a new image once for setup that only the board itself can do; it then powers off."""
    command = [find_qemu(machine.architecture), *machine_arguments(machine, "edgekit.prepare")]
    command += ["-serial", f"file:{log}"]
    found = ""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PREPARE_SECONDS,
            check=False,
        )
        found = done.stderr.strip()[-200:]
    except subprocess.TimeoutExpired:
        found = f"nothing within {_PREPARE_SECONDS} s"
    said = log.read_bytes() if log.is_file() else b""
    if _PREPARED not in said:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise BoardToolError(
            f"{machine.architecture.label}: expected the new image to boot, found: "
            f"{found or ' '.join(last) or 'silence'}; please report it"
        )
    log.unlink()
