"""Parts of the cache and the DRAM that models have while others are at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.host.cli.estimate_together import fit_threads
from edgekit.host.simulator.model import ModelEstimate
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.target import target_of
from edgekit.host.simulator.together import shared_cores
from edgekit.kb.targets.board import load_board

KIB, MIB = 1 << 10, 1 << 20


def core_of(board: str):
    return target_of(load_board(board)).core


def model(milliseconds: float, touched: int, clock: float) -> ModelEstimate:
    cost = SimulatedCost(round(milliseconds * clock * 1000), 1, {})
    return ModelEstimate(
        *("m", "r", "b", "c", clock, 1, "float", cost, (), 0), touched // 2, touched - touched // 2,
        *({}, 1, None),
    )  # fmt: skip


def test_models_that_fit_lose_no_cache_that_they_need():
    core = core_of("rpi4")
    small = model(1.0, 100 * KIB, core.clock_mhz)
    one, two = shared_cores(core, [small, small])
    assert one == two
    assert 100 * KIB <= one.cache_bytes < core.l2.bytes
    assert one.gb_s == core.dram.gb_s
    assert one.core.l2.bytes // one.core.l2.ways == core.l2.bytes // core.l2.ways


def test_a_small_model_keeps_what_it_touches_and_leaves_the_rest():
    core = core_of("rpi4")
    wake, detector = model(1.0, 40 * KIB, core.clock_mhz), model(50.0, 8 * MIB, core.clock_mhz)
    one, two = shared_cores(core, [wake, detector])
    assert 40 * KIB <= one.cache_bytes <= 3 * core.l2.bytes // core.l2.ways
    assert one.cache_bytes + two.cache_bytes == core.l2.bytes
    assert one.core.dram.gb_s < core.dram.gb_s == two.core.dram.gb_s


def test_of_models_that_do_not_fit_the_faster_reader_wins_more():
    core = core_of("rpi4")
    fast, slow = model(10.0, 8 * MIB, core.clock_mhz), model(40.0, 8 * MIB, core.clock_mhz)
    one, two = shared_cores(core, [fast, slow])
    assert (one.core.l2.ways, two.core.l2.ways) == (13, 3)  # of 16, by four to one
    assert one.core.dram.gb_s > two.core.dram.gb_s >= core.dram.gb_s / 2


def test_bandwidth_is_never_less_than_an_equal_part():
    core = core_of("rpi4")
    greedy = model(1.0, 100 * MIB, core.clock_mhz)
    found = shared_cores(core, [greedy] * 3)
    assert all(each.gb_s == core.dram.gb_s / 3 for each in found)
    assert all(each.core.dram.core_gb_s == each.gb_s for each in found)
    assert all(each.core.dram.write_gb_s == core.dram.write_gb_s / 3 for each in found)


def test_caches_of_each_core_are_not_shared():
    core = core_of("rpi4")
    own = replace(core, l2=replace(core.l2, per_core=True), l3=None)
    found = shared_cores(own, [model(1.0, 9 * MIB, core.clock_mhz)] * 2)
    assert all((each.cache_bytes, each.core.l2) == (0, own.l2) for each in found)


@pytest.mark.parametrize(
    ("wanted", "fitting"),
    [
        ([1, 1], [1, 1]),
        ([1, 4], [1, 3]),
        ([4, 4], [2, 2]),
        ([4, 1, 4], [1, 1, 2]),
        ([4] * 4, [1] * 4),
    ],
)
def test_models_that_want_all_cores_share_them(wanted: list[int], fitting: list[int]):
    assert fit_threads(wanted, 4) == fitting
