"""The profile proposed for a board whose owner specifies none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgekit.host.deploy.doctor.propose import propose
from tests.support.probes import JETSON_NANO

PI4 = replace(
    JETSON_NANO,
    board="Raspberry Pi 4 Model B Rev 1.4",
    compatible=("raspberrypi,4-model-b", "brcm,bcm2711"),
    core_names=("cortex-a72",),
)
DOT = ("asimd", "asimdhp", "asimddp")
I8MM = (*DOT, "i8mm")
X60: dict[str, Any] = {
    "machine": "riscv64",
    "core_names": ("spacemit-x60",),
    "features": ("v", "zba"),
    "vlen_bits": 256,
}


@pytest.mark.parametrize(
    ("change", "profile"),
    [
        ({}, "rpi4"),
        ({"compatible": ("raspberrypi,model-zero-2-w", "brcm,bcm2837")}, "rpi-zero2w"),
        ({"compatible": ("raspberrypi,3-model-b", "brcm,bcm2837")}, "rpi3"),
        ({"compatible": ("radxa,rock-5b", "rockchip,rk3588"), "features": DOT}, "rk3588"),
        ({"compatible": ("radxa,orion-o6", "cix,sky1"), "features": I8MM}, "orion-o6"),
        ({"compatible": ("nvidia,p3450-0000", "nvidia,tegra210")}, "jetson-nano"),
        ({"compatible": ("spacemit,k1-x",), **X60}, "bpi-f3"),
        ({"compatible": ("spacemit,k1-x",), **X60, "vlen_bits": 128}, "rv64gcv"),
        ({"compatible": (), **X60}, "rv64gcv-zvl256b"),
        ({"compatible": (), **X60, "core_names": ()}, "rv64gcv-zvl256b"),
        ({"compatible": (), **X60, "core_names": (), "vlen_bits": 128}, "rv64gcv"),
        ({"compatible": (), **X60, "core_names": (), "vlen_bits": 512}, "rv64gcv-zvl512b"),
        ({"compatible": (), **X60, "core_names": (), "vlen_bits": 1024}, "rv64gcv-zvl512b"),
        ({"compatible": (), **X60, "core_names": (), "vlen_bits": None}, "rv64gc"),
        ({"compatible": ("vendor,board",)}, "a72"),
        ({"compatible": (), "board": "", "core_names": ("cortex-a76",), "features": DOT}, "a76"),
        ({"machine": "armv7l", "features": ("neon", "vfpv4")}, "a7"),
        ({"compatible": (), "core_names": ("cortex-a75",)}, "a53"),
        ({"compatible": (), "core_names": ("cortex-a78",), "features": DOT}, "a55"),
        ({"compatible": (), "core_names": ("cortex-a710",), "features": I8MM}, "a720"),
    ],
)
def test_a_board_is_known_by_its_device_tree_else_by_its_core(
    change: dict[str, Any], profile: str
) -> None:
    found = propose(replace(PI4, **change))
    assert found is not None
    assert found.profile == profile


def test_the_reason_is_what_the_board_calls_itself() -> None:
    found = propose(PI4)
    assert found is not None
    assert found.reason == "Raspberry Pi 4 Model B Rev 1.4"


@pytest.mark.parametrize("change", [{"machine": "mips"}, {"features": ()}])
def test_a_board_that_no_kernels_run_on_gets_none(change: dict[str, Any]) -> None:
    assert propose(replace(PI4, **change)) is None
