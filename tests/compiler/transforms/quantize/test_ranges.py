"""From the values of a tensor to its scale and zero point."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.transforms.quantize.histogram import Histogram
from edgekit.host.compiler.transforms.quantize.ranges import (
    histogram_quant,
    least_squares,
    range_quant,
)


def _seen(*values) -> Histogram:
    found = Histogram()
    for each in values:
        found.add(np.asarray(each, np.float32))
    return found


def _counted(found: Histogram) -> list[tuple[float, int]]:
    used = np.flatnonzero(found.counts)
    return [(float(found.centers[i]), int(found.counts[i])) for i in used]


def test_values_are_counted_in_bins_that_grow_with_them():
    found = _seen([0.0, 1.0, 1.0, -0.5], [], [1000.0])
    assert (found.low, found.high) == (-0.5, 1000.0)
    assert found.counts.sum() == 4  # zeros are not counted: any scale represents 0
    width = 2.0**found.exponent
    for (center, count), (value, times) in zip(
        _counted(found), [(-0.5, 1), (1.0, 2), (1000.0, 1)], strict=True
    ):
        assert abs(center - value) <= width and count == times


def test_merged_histograms_are_what_all_values_together_make():
    rng = np.random.default_rng(0)
    small, large = rng.normal(0, 1, 500), rng.normal(0, 40, 500)
    merged, together = _seen(small).merged(_seen(large)), _seen(small, large)
    np.testing.assert_array_equal(merged.counts, together.counts)
    assert (merged.low, merged.high, merged.exponent) == (
        together.low,
        together.high,
        together.exponent,
    )


@pytest.mark.parametrize("low, high", [(-1.0, 3.0), (0.5, 2.0), (-9.0, -2.0), (0.0, 6.0)])
def test_quantized_values_reach_from_end_to_end_and_have_one_for_0(low, high):
    found = range_quant(low, high)
    scale, zero = float(found.scale[0]), int(found.zero_point[0])
    ends = (np.array([-128, 127]) - zero) * scale
    assert ends[0] <= min(low, 0) + scale and ends[1] >= max(high, 0) - scale
    assert -128 <= zero <= 127


def test_a_range_of_nothing_still_has_a_scale():
    assert range_quant(0.0, 0.0).scale[0] > 0


def test_a_rare_extreme_is_clipped_where_that_costs_less_than_coarse_quantized_values():
    values = np.random.default_rng(1).normal(0, 1, 100_000)
    found = _seen(values, [30.0])
    low, high = least_squares(found)
    assert high < 30.0 and low <= -2.5
    extremes, best = (histogram_quant(found, m).scale[0] for m in ("extremes", "least_squares"))
    assert best < extremes


def test_values_spread_evenly_are_not_clipped():
    found = _seen(np.linspace(-2, 2, 10_001))
    np.testing.assert_allclose(least_squares(found), (-2, 2), atol=0.05)
