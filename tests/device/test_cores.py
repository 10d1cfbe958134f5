"""Core names from the /proc/cpuinfo texts of real boards."""

from __future__ import annotations

import pytest

from edgekit.device.runtime.agent.cores import ARM_PARTS, core_names
from edgekit.kb.targets.board import board_names, load_board

A57 = "processor\t: {0}\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd07\n"
A53 = A57.replace("0xd07", "0xd03")
OWN = A57.replace("0x41", "0x4e")
U74 = (
    "processor\t: {0}\nhart\t\t: 1\nisa\t\t: rv64imafdc\nmmu\t\t: sv39\nuarch\t\t: sifive,u74-mc\n"
)
X60 = "processor\t: {0}\nuarch\t\t: spacemit,x60\n"
X86 = "processor\t: {0}\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU @ 2 GHz\n"


def listing(*blocks: str) -> str:
    return "\n".join(block.format(i) for i, block in enumerate(blocks)) + "\n"


@pytest.mark.parametrize(
    ("cpuinfo", "names"),
    [
        (listing(A57, A57), ("cortex-a57",)),
        (listing(A53, A53, A57), ("cortex-a53", "cortex-a57")),
        (listing(OWN), ("implementer 0x4e part 0xd07",)),
        (listing(U74, U74), ("sifive-u74",)),
        (listing(X60), ("spacemit-x60",)),
        (listing(X86), ("Some CPU @ 2 GHz",)),
        (listing("processor\t: {0}\nhart\t: 0\nisa\t: rv64imafdc\n"), ()),
        ("", ()),
    ],
    ids=["a57", "big-little", "foreign", "u74", "x60", "x86", "unnamed", "empty"],
)
def test_names(cpuinfo: str, names: tuple[str, ...]) -> None:
    assert core_names(cpuinfo) == names


def test_profiles_use_the_same_names() -> None:
    known = {*ARM_PARTS.values(), "sifive-u74", "spacemit-x60", "spacemit-x100", "xuantie-c908", ""}
    profiles = [load_board(name) for name in board_names() if name != "local"]
    assert {p.core for p in profiles} <= known
