"""Starts a virtual board from its saved machine, or boots it and saves the machine."""

from __future__ import annotations

import os
import re
import tempfile
import time
from pathlib import Path

from edgekit.host.debian.architecture import RISCV64
from edgekit.host.debian.tools import BoardToolError, find_tools, run_tool
from edgekit.host.virtual import process, records, rootfs
from edgekit.host.virtual.control import run_as_root
from edgekit.host.virtual.image import Image
from edgekit.host.virtual.machines import VirtualBoard
from edgekit.host.virtual.qemu import (
    Drive,
    QemuMachine,
    connection_arguments,
    find_qemu,
    machine_arguments,
    start_process,
)
from edgekit.host.virtual.qmp import Qmp, QmpError
from edgekit.host.virtual.saved import load_state, save_state, state_path, wake_timers
from edgekit.host.virtual.types import BoardOptions, OnStep, RunningBoard

_BOOT_SECONDS = 1200  # half a minute of CPU time; the host may be busy
_RESTORED_SECONDS = 60
_QMP_SECONDS = 60
_COPY_SECONDS = 120
_HOST = "127.0.0.1"


def start_board(
    board: VirtualBoard, image: Image, options: BoardOptions, on_step: OnStep
) -> RunningBoard:
    """Starts the board and records it. The caller holds its lock."""
    machine = machine_of(board, image, options)
    state = state_path(image, board.name, machine, find_qemu(board.architecture))
    start = _Start(board, image, options, machine)
    if state.is_file():
        on_step("restore")
        try:
            return start.run(state, None)
        except QmpError:
            state.unlink(missing_ok=True)  # from another QEMU, or damaged: boot and save again
    on_step("boot")
    return start.run(None, state)


def machine_of(board: VirtualBoard, image: Image, options: BoardOptions) -> QemuMachine:
    """QEMU's machine for a board; creates its persistent disk if `options` names a new one."""
    home = Drive(str(image.home_disk), keep=False)
    if options.disk is not None:
        home = Drive(options.disk)
        if not options.disk.startswith("nbd:"):
            _make_disk(image, Path(options.disk))
    return QemuMachine(
        architecture=board.architecture,
        kernel=image.kernel,
        initrd=image.initrd,
        root=Drive(str(image.root_disk), read_only=True),
        home=home,
        cpu=board.cpu,
        memory_mib=options.memory_mib,
        cores=options.cores,
        counting=options.counting,
    )


def _make_disk(image: Image, target: Path) -> None:
    """Creates a persistent, initially empty home disk."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.new")
    copy = [find_tools(["cp"])["cp"], "--sparse=always", str(image.home_disk), str(fresh)]
    run_tool(copy, what=f"making {target.name}", seconds=_COPY_SECONDS)
    fresh.replace(target)


class _Start:
    """A board that is being started."""

    def __init__(
        self, board: VirtualBoard, image: Image, options: BoardOptions, machine: QemuMachine
    ) -> None:
        self._board = board
        self._image = image
        self._options = options
        self._machine = machine

    def run(self, restore: Path | None, save: Path | None) -> RunningBoard:
        """Starts QEMU and brings the board up; on failure nothing is left running."""
        name = self._board.name
        log = records.record_path(name).with_suffix(".log")
        # Paths of Unix sockets are limited in length, and the user's folders may be deep.
        control = Path(tempfile.mkdtemp(prefix="edgekit-"))
        command = [find_qemu(self._board.architecture), *machine_arguments(self._machine)]
        command += connection_arguments(
            control, incoming=restore is not None, outgoing=self._options.outgoing
        )
        pid = start_process(command, log)
        mark = process.start_mark(pid) or ""
        records.write_record(name, records.MachineRecord(pid, mark, control))
        try:
            running = self._bring_up(pid, mark, control, restore, save)
            records.write_record(name, records.MachineRecord(pid, mark, control, running))
        except BaseException as error:
            ended = process.start_mark(pid) != mark
            records.clear_record(name)
            said = log.read_text(encoding="utf-8", errors="replace").strip()
            if isinstance(error, QmpError) and ended and said:
                raise type(error)(f"{error}; QEMU said: {said.splitlines()[-1]}") from None
            raise
        return running

    def _bring_up(
        self, pid: int, mark: str, control: Path, restore: Path | None, save: Path | None
    ) -> RunningBoard:
        def alive() -> bool:
            return process.start_mark(pid) == mark

        with Qmp(control / "qmp", seconds=_QMP_SECONDS, alive=alive) as qmp:
            if restore is not None:
                load_state(qmp, restore)
                if self._board.architecture is RISCV64:
                    wake_timers(control)
                qmp.call("cont")
            ready = _RESTORED_SECONDS if restore else _BOOT_SECONDS
            run_as_root(control, "true", seconds=ready)
            if save is not None:
                save_state(qmp, save)
            ssh_port = _forwarded_port(qmp.monitor("info usernet"))
            console = _console_url(qmp.call("query-chardev"))
        # A restored board has the clock and entropy of when it was saved. Its home disk was not
        # mounted then, so any disk can be attached now.
        fresh = f"echo {os.urandom(64).hex()} >/dev/urandom && date -s @{time.time():.3f}"
        mount = "mount -t ext4 -o noatime /dev/home-disk /home"
        run_as_root(control, f"{fresh} && {mount}", seconds=_RESTORED_SECONDS)
        return RunningBoard(
            name=self._board.name,
            profile=self._board.profile,
            ssh_host=_HOST,
            ssh_port=ssh_port,
            user=rootfs.USER,
            password=rootfs.PASSWORD,
            identity=self._image.identity,
            host_key=self._image.host_key(),
            console=console,
            pid=pid,
            mark=mark,
            control=control,
            memory_mib=self._options.memory_mib,
            cores=self._options.cores,
            counting=self._options.counting,
            disk=self._options.disk,
        )


def _forwarded_port(usernet: str) -> int:
    found = re.search(r"TCP\[HOST_FORWARD\]\s+\S+\s+127\.0\.0\.1\s+(\d+)", usernet)
    if found is None:
        raise BoardToolError("QEMU: expected a forwarded port, found none; please report it")
    return int(found.group(1))


def _console_url(devices: list[dict[str, object]]) -> str:
    for device in devices:
        found = re.search(r"tcp:127\.0\.0\.1:(\d+)", str(device["filename"]))
        if device["label"] == "console" and found:
            return f"socket://{_HOST}:{found.group(1)}"
    raise BoardToolError("QEMU: expected a console, found none; please report it")
