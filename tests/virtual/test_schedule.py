"""A virtual board's schedule in a real board's time."""

from __future__ import annotations

import pytest

from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.targets.core import load_core
from tests.support.board_time_schedule import OTHER_CYCLES, Frame, responses

_CORE = load_core("a57")
_MILLISECOND = _CORE.clock_mhz * 1000  # cycles
_MODEL, _OTHER = SimulatedCost(2 * _MILLISECOND, 10**6, {}), SimulatedCost(10**6, 10**6, {})
_STEP = 0.004


def _milliseconds(*frames: Frame) -> list[float]:
    return [1000 * took for took in responses(frames, _MODEL, _OTHER, _CORE, _STEP)]


def test_a_frame_takes_the_models_cycles_and_those_of_an_empty_l1():
    lines = (_CORE.l1d.bytes + _CORE.l1i.bytes) // 64
    expected = 2 + lines * _CORE.l2.latency / _MILLISECOND
    assert _milliseconds(Frame(0, 10**6, 0)) == [pytest.approx(expected)]


def test_instructions_besides_the_models_and_of_others_take_many_cycles():
    alone, more, late, stopped = (
        _milliseconds(frame)[0]
        for frame in (
            Frame(0, 10**6, 0),
            Frame(0, 10**6 + 1000, 0),
            Frame(1000, 10**6, 0),
            Frame(0, 10**6, 1000),
        )
    )
    expected = pytest.approx(1000 * OTHER_CYCLES / _MILLISECOND)
    assert [each - alone for each in (more, late, stopped)] == [expected] * 3


def test_a_frame_begins_when_the_one_before_is_complete():
    own = _milliseconds(Frame(0, 10**6, 0))[0]
    waits = 3 * 10**6 * OTHER_CYCLES / _MILLISECOND
    first, second, third = _milliseconds(Frame(3 * 10**6, 10**6, 0), *2 * [Frame(0, 10**6, 0)])
    assert first == pytest.approx(own + waits)
    assert second == pytest.approx(first - 4 + own)
    assert third == pytest.approx(max(second - 4, 0) + own)
