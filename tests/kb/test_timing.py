"""Clocks and memory parameters of boards, as used by their cores' timing models."""

from __future__ import annotations

import pytest

from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.core import core_names, load_core
from edgekit.kb.targets.timing import parse_cluster

_CLOCKS = {
    "jetson-nano": ("a57", 1430),
    "orangepi-pc": ("a7", 1200),
    "rk3399": ("a72", 1800),
    "rk3566": ("a55", 1800),
    "rk3588": ("a76", 2400),
    "rpi-zero2w": ("a53", 1000),
    "rpi3": ("a53", 1400),
    "rpi4": ("a72", 1800),
    "rpi5": ("a76", 2400),
    "visionfive2": ("u74", 1500),
    "bpi-f3": ("x60", 1600),
    "k230": ("c908", 1600),
    "k3": ("x100", 2400),
    "odroid-n2": ("a73", 2200),
    "orin": ("a78", 1500),
    "orion-o6": ("a720", 2400),
    "rk3308": ("a35", 1300),
}


@pytest.mark.parametrize("board", sorted(_CLOCKS))
def test_boards_name_the_core_and_clock_of_their_fastest_cluster(board):
    cluster = load_board(board).timing[0]
    assert (cluster.name, cluster.core, cluster.clock_mhz) == ("cpu", *_CLOCKS[board])
    assert cluster.core in core_names()
    assert all(origin.text for origin in cluster.origins)


def test_the_memory_of_a_board_replaces_that_of_its_core():
    core, own = load_core("a55"), load_board("rk3588").timing[1].timed()
    assert (own.name, own.operations) == (core.name, core.operations)
    assert (own.clock_mhz, own.dram.latency_ns, own.l2.bytes) == (1800, 121, 131072)
    assert own.l2.per_core
    assert own.l3 is not None
    assert load_board("rk3566").timing[0].timed().l3 is None


def test_a_board_whose_writes_are_slower_than_its_reads_says_so():
    assert load_board("rpi4").timing[0].timed().dram.write_gb_s == 3.1
    assert load_board("rk3566").timing[0].timed().dram.write_gb_s == 0  # same as for all accesses


def test_a_board_says_what_cores_cost_each_other_in_dram():
    assert load_board("rpi4").timing[0].timed().dram.turn_ns == 20
    assert load_board("rk3399").timing[0].timed().dram.turn_ns == 0  # not fitted


def _table(**changes: object) -> dict[str, object]:
    figure = {"value": 100, "source": "measured"}
    keys = ("clock_mhz", "dram_ns", "dram_core_gb_s", "dram_gb_s")
    return {"core": "a53"} | dict.fromkeys(keys, figure) | changes


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (7, r"expected a table \[timing.cpu\]"),
        (_table(core=3), "with a core"),
        (_table(clock_mhz={"value": 0, "source": "x"}), "to be a number above 0, found 0"),
        (_table(clock_mhz={"value": 9}), "{ value = ..., source = ... }"),
        (_table(speed={"value": 9, "source": "x"}), "unknown values speed"),
        (_table(l2_bytes={"value": 9, "source": "x"}), "expected l2_ways, l2_latency, l2_per_core"),
    ],
)
def test_a_wrong_table_is_one_line(table, expected):
    with pytest.raises(ValueError, match=expected) as error:
        parse_cluster("board profile 'x'", "cpu", table)
    assert "\n" not in str(error.value)
