"""Starting and stopping virtual boards: restored, with their own disks, unplugged."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edgekit.host.virtual import BoardOptions, down, find_running, process, up
from edgekit.host.virtual.image import ensure_image
from edgekit.host.virtual.machines import virtual_board
from edgekit.host.virtual.qemu import find_qemu
from edgekit.host.virtual.saved import state_path
from edgekit.host.virtual.start import machine_of

pytestmark = pytest.mark.boards

_MACHINES = {"a57": "aarch64", "rv64v": "riscv64"}


def saved_machine(name: str, options: BoardOptions) -> Path:
    """The file of a saved machine whose image is built."""
    board = virtual_board(name)
    image = ensure_image(board.architecture, None, lambda step: None)
    machine = machine_of(board, image, options)
    return state_path(image, name, machine, find_qemu(board.architecture))


def test_two_at_once_and_down_leaves_nothing(own_home, record_property):
    for name in _MACHINES:  # creates a saved machine to restore
        up(name)
        down(name)
    steps: list[str] = []
    boards = []
    for name in _MACHINES:
        began = time.monotonic()
        boards.append(up(name, progress=steps.append))
        record_property(f"{name}_up_seconds", time.monotonic() - began)
    assert steps == ["restore", "restore"]
    assert len({board.ssh_port for board in boards}) == 2
    for board in boards:
        assert board.run_as_root("uname -m").strip() == _MACHINES[board.name]
    for board in boards:
        assert down(board.name)
        assert process.start_mark(board.pid) is None
        assert not board.control.exists() and find_running(board.name) is None
        assert not down(board.name)


def test_home_is_new_at_each_start_unless_it_has_a_disk(own_home):
    disk = BoardOptions(disk=str(own_home / "disks" / "a57.img"))
    for options, seen in ((None, False), (None, False), (disk, False), (disk, True)):
        board = up("a57", options=options)
        try:
            found = board.run_as_root(
                "test -e /home/edge/mark && echo there; touch /home/edge/mark"
            )
            assert (found.strip() == "there") == seen
        finally:
            down("a57")


def test_pulled_plug_loses_what_was_not_written(own_home):
    options = BoardOptions(disk=str(own_home / "a57.img"))
    board = up("a57", options=options)
    board.run_as_root("echo kept >/home/edge/kept && sync && echo lost >/home/edge/lost")
    board.kill()
    assert find_running("a57") is None
    board = up("a57", options=options)
    try:
        assert board.run_as_root("cat /home/edge/*").split() == ["kept"]
    finally:
        down("a57")


def test_damaged_saved_machine_is_made_anew(own_home):
    options = BoardOptions(memory_mib=320)
    up("a57")
    down("a57")
    saved = saved_machine("a57", options)
    # Of a machine that other tests have saved too; to boot one of this size first took a minute.
    saved.write_bytes(saved_machine("a57", BoardOptions()).read_bytes()[:100000])
    steps: list[str] = []
    board = up("a57", options=options, progress=steps.append)
    try:
        assert steps == ["restore", "boot"]
        assert board.run_as_root("echo well").strip() == "well"
    finally:
        down("a57")
        saved.unlink()
