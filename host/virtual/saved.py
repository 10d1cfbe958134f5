"""Saved machines: memory images of freshly booted boards, restored at the next start."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

from edgekit.host.virtual.image import Image
from edgekit.host.virtual.qemu import Drive, QemuMachine, connection_arguments, machine_arguments
from edgekit.host.virtual.qmp import Qmp, QmpError

_SECONDS = 120
_TIME_REGISTER = 0x200BFF8  # address of mtime, shared by all harts
_NO_LIMIT = 1 << 40  # bytes per second; QEMU's default limit is meant for networks


def state_path(image: Image, name: str, machine: QemuMachine, qemu: str) -> Path:
    """The path of the saved machine; its name encodes everything it depends on except the image."""
    found = Path(qemu).stat()
    # The home disk does not matter, and paths to the same image may differ.
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
    """Saves the machine's memory and resumes it. It must not have written to its disks."""
    descriptor, name = tempfile.mkstemp(prefix=".saving-", dir=target.parent)
    made = Path(name)
    try:
        qmp.call("stop")
        qmp.call("migrate-set-parameters", **{"max-bandwidth": _NO_LIMIT})
        qmp.send_file("state", descriptor)
        qmp.call("migrate", uri="fd:state")
        if qmp.wait_status("query-migrate", ("completed", "failed"), seconds=_SECONDS) == "failed":
            raise QmpError("QEMU: expected it to save the machine, found that it failed; try again")
        qmp.call("cont")
        made.replace(target)
    finally:
        os.close(descriptor)
        made.unlink(missing_ok=True)


def load_state(qmp: Qmp, source: Path) -> None:
    """Restores memory into a machine started with `incoming`; leaves it paused."""
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
    """Arms the timers of a restored RISC-V machine: QEMU saves their deadlines but does not arm
    them.

    Rewriting mtime with its current value makes the timer device reevaluate the deadlines.
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
        raise QmpError(f"QEMU: expected it to set the time, found '{answer}'")
