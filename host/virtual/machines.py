"""The available virtual boards."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.debian.architecture import ARM64, ARMHF, RISCV64, Architecture
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import nearest


@dataclass(frozen=True)
class VirtualBoard:
    """A board by name: its compilation profile and QEMU's name of its CPU."""

    name: str
    profile: str
    architecture: Architecture
    cpu: str


# sstc is disabled so that the timer is a device that can wake a restored machine (saved.py).
_BOARDS = {
    board.name: board
    for board in (
        VirtualBoard("a53", "a53", ARM64, "cortex-a53"),
        VirtualBoard("a57", "a57", ARM64, "cortex-a57"),
        VirtualBoard("a7", "a7", ARMHF, "cortex-a7"),
        VirtualBoard("a72", "a72", ARM64, "cortex-a72"),
        VirtualBoard("rv64", "rv64gc", RISCV64, "rv64,v=false,sstc=false"),
        VirtualBoard("rv64v", "rv64gcv", RISCV64, "rv64,v=true,vlen=128,sstc=false"),
    )
}


def virtual_board_names() -> list[str]:
    """Names accepted by `up`."""
    return sorted(_BOARDS)


def virtual_board(name: str) -> VirtualBoard:
    """The virtual board `name`; InputError if there is none."""
    board = _BOARDS.get(name)
    if board is None:
        known = ", ".join(virtual_board_names())
        raise InputError(
            f"expected a virtual board ({known}), found '{name}'{nearest(name, _BOARDS)}"
        )
    return board
