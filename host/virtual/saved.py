"""Saved machines: the memory of a board that has just booted, to start from the next time."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

from edgekit.host.virtual.image import Image
from edgekit.host.virtual.qemu import Drive, Machine, connection_arguments, machine_arguments
from edgekit.host.virtual.qmp import Qmp, QmpError

_SECONDS = 120
_TIME_REGISTER = 0x200BFF8  # mtime, of all harts
_NO_LIMIT = 1 << 40  # bytes per second; QEMU's default is made for networks


def state_path(image: Image, name: str, machine: Machine, qemu: str) -> Path:
    """The path of the saved machine; the name holds all that it depends on but the image."""
    found = Path(qemu).stat()
    # Any home disk will do, and the image may be reached by more than one path.
    same = replace(
        machine,
        kernel=Path(),
        initrd=Path(),
        root=Drive("root", read_only=True),
        home=Drive("home", keep=False),
    )
    facts = (
        machine_arguments(same),
        connection_arguments(Path(), incoming=False),
        (qemu, found.st_size, found.st_mtime_ns),
    )
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()
    return image.states / f"{name}-{digest[:16]}.state"


def save_state(qmp: Qmp, target: Path) -> None:
    """Writes the machine's memory and goes on running. It must not have written to its disks."""
    descriptor, name = tempfile.mkstemp(prefix=".saving-", dir=target.parent)
    made = Path(name)
    try:
        qmp.call("stop")
        qmp.call("migrate-set-parameters", **{"max-bandwidth": _NO_LIMIT})
        qmp.send_file("state", descriptor)
        qmp.call("migrate", uri="fd:state")
        if qmp.wait_status("query-migrate", ("completed", "failed"), seconds=_SECONDS) == "failed":
            raise QmpError("QEMU: expected to save the machine, found that it failed; try again")
        qmp.call("cont")
        made.replace(target)
    finally:
        os.close(descriptor)
        made.unlink(missing_ok=True)


def load_state(qmp: Qmp, source: Path) -> None:
    """Fills a machine that was started for it (`incoming`); it stands still afterwards."""
    descriptor = os.open(source, os.O_RDONLY)
    try:
        qmp.send_file("state", descriptor)
    finally:
        os.close(descriptor)
    qmp.call("migrate-incoming", uri="fd:state")
    wanted = ("paused", "postmigrate", "internal-error", "shutdown")
    status = qmp.wait_status("query-status", wanted, seconds=_SECONDS)
    if status != "paused":
        raise QmpError(f"QEMU: expected the saved machine, found {status}")


def wake_timers(control: Path) -> None:
    """Arms the timers of a restored RISC-V machine: QEMU saves when they are due, but no more.

    Writing the time they are compared with, unchanged, makes the timer device look at them again.
    """
    with socket.socket(socket.AF_UNIX) as bus:
        bus.settimeout(_SECONDS)
        try:
            bus.connect(str(control / "bus"))
            answers = bus.makefile("r")
            bus.sendall(f"readq {_TIME_REGISTER:#x}\n".encode())
            now = answers.readline().removeprefix("OK ").strip()
            bus.sendall(f"writeq {_TIME_REGISTER:#x} {now}\n".encode())
            answer = answers.readline().strip()
        except OSError as error:
            raise QmpError(f"QEMU: expected its bus socket, found: {error}") from None
    if answer != "OK":
        raise QmpError(f"QEMU: expected to set the time, found '{answer}'")
