"""Statistics of benchmarks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.runtime.agent.bench import latency, operator_shares, percentile
from edgekit.device.runtime.agent.probe import conditions
from edgekit.device.runtime.agent.specs import OperatorSpec


@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(0, 100))
def test_percentile_as_numpy_computes_it(values: list[int], percent: int) -> None:
    expected = np.percentile(values, percent)
    assert percentile(sorted(values), percent) == pytest.approx(expected)


def test_latency_in_milliseconds() -> None:
    found = latency([3_000_000, 1_000_000, 2_000_000])
    assert found == {"median": 2.0, "p10": 1.2, "p90": 2.8, "n": 3}


def test_one_slow_run_moves_no_operator() -> None:
    specs = [OperatorSpec("a", "Conv", "k"), OperatorSpec("b", "Add", "k")]
    found = operator_shares(specs, [(3000, 1000), (3000, 1000), (9_000_000, 1000)])
    assert [o["median_us"] for o in found] == [3.0, 1.0]
    assert [o["share"] for o in found] == [0.75, 0.25]
    assert operator_shares([], [()]) == []
    assert operator_shares(specs, [(0, 0)])[0]["share"] == 0


def test_conditions_are_numbers_or_unknown() -> None:
    found = conditions()
    assert found.frequency_mhz is None or 1 < found.frequency_mhz < 20_000
    assert found.temperature_c is None or -50 < found.temperature_c < 200
