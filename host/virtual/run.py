"""Starts, finds and stops virtual boards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.host.common.files import locked
from edgekit.host.debian.packages import boards_cache
from edgekit.host.errors import InputError, UnreachableError
from edgekit.host.virtual import process, records
from edgekit.host.virtual.control import run_as_root
from edgekit.host.virtual.image import ensure_image, recipe_hash
from edgekit.host.virtual.machines import virtual_board, virtual_board_names
from edgekit.host.virtual.qemu import find_qemu
from edgekit.host.virtual.qmp import Qmp, QmpError
from edgekit.host.virtual.start import start_board
from edgekit.host.virtual.types import BoardOptions, BoardState, OnStep, RunningBoard

_SYNC_SECONDS = 10
_QUIT_SECONDS = 10


def up(
    name: str,
    *,
    options: BoardOptions | None = None,
    progress: OnStep | None = None,
) -> RunningBoard:
    """Starts the virtual board `name`; it stays up until `down`.

    The first call for an architecture builds its image; the first start of a board boots it and
    saves the machine, and later starts restore it. A board that is already up is returned
    unchanged. InputError names missing packages of the host.
    """
    board = virtual_board(name)
    on_step = progress or (lambda _: None)
    wanted = _resolve_options(options or BoardOptions())
    find_qemu(board.architecture)
    image = ensure_image(board.architecture, wanted.mirror, on_step)
    with locked(records.record_path(name).with_suffix(".lock")):
        found = find_running(name)
        if found is not None:
            _check_same(found, wanted)
            return found
        records.clear_record(name)
        return start_board(board, image, wanted, on_step)


def down(name: str) -> bool:
    """Powers off a virtual board after a `sync`; False if it was not up."""
    virtual_board(name)
    with locked(records.record_path(name).with_suffix(".lock")):
        record = records.read_record(name)
        if record is not None:
            _shut_down(record)
        records.clear_record(name)
    return record is not None


def find_running(name: str) -> RunningBoard | None:
    """The virtual board `name` if it is up; None if it is not, or does not exist."""
    if name not in virtual_board_names():
        return None
    record = records.read_record(name)
    return record.board if record else None


def status() -> list[BoardState]:
    """The state of all virtual boards, by name."""
    recipe = recipe_hash()

    def state(name: str) -> BoardState:
        board = virtual_board(name)
        built = (boards_cache() / f"{board.architecture.label}-{recipe}").is_dir()
        return BoardState(name, board.profile, built, find_running(name))

    return [state(name) for name in virtual_board_names()]


def _resolve_options(options: BoardOptions) -> BoardOptions:
    """Options with implied values filled in: counting instructions requires a single core."""
    cores = 1 if options.counting else options.cores
    if not 1 <= cores <= 8 or not 192 <= options.memory_mib <= 8192:
        raise InputError(
            "virtual boards: expected 1 to 8 cores and 192 to 8192 MiB of memory, found "
            f"{cores} cores and {options.memory_mib} MiB"
        )
    disk = options.disk
    if disk is not None and not disk.startswith("nbd:"):
        disk = str(Path(disk).absolute())
    return replace(options, cores=cores, disk=disk)


def _check_same(found: RunningBoard, wanted: BoardOptions) -> None:
    names = ("memory_mib", "cores", "counting", "disk")
    for key in names:
        have, want = getattr(found, key), getattr(wanted, key)
        if have != want:
            raise InputError(
                f"virtual board '{found.name}': expected {key} {want}, found it up with {have}; "
                f"try: edgekit board down {found.name}"
            )


def _shut_down(record: records.MachineRecord) -> None:
    """Lets the board flush its data and QEMU exit on its own; the caller kills what remains."""
    try:
        if record.board is not None and record.board.disk is not None:
            run_as_root(record.control, "sync; umount /home || sync", seconds=_SYNC_SECONDS)
        alive = process.start_mark(record.pid) == record.mark
        with Qmp(record.control / "qmp", seconds=_QUIT_SECONDS, alive=lambda: alive) as qmp:
            qmp.call("quit")
    except (QmpError, UnreachableError):
        return
    process.wait_end(record.pid, record.mark, _QUIT_SECONDS)
