"""Per-layer outlier thresholds, chosen on the host from sample activations."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device import OutlierWeights
from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import InputError
from edgekit.host.lab.tune.outlier import choose_threshold
from tests.support.outlier_cases import activations


def layer(largest: float, channels: int) -> tuple[list[Array], OutlierWeights]:
    """Three samples; the first `channels` channels reach `largest`, all others at most 1."""
    rng = np.random.default_rng(channels)
    samples = [np.clip(activations(rng, 20, 80, 0), -1, 1) for _ in range(3)]
    for sample in samples:
        sample[::3, :channels] = largest
    return samples, OutlierWeights.from_float(rng.standard_normal((80, 30)))


def test_outliers_below_the_usual_threshold_are_found() -> None:
    samples, w = layer(5.5, 3)
    choice = choose_threshold(samples, w, target=0.004)
    assert 1 <= choice.chosen.threshold < 5.5 and choice.chosen.outliers == 3
    assert choice.usual.threshold == 6 and choice.usual.outliers == 0
    assert choice.chosen.error <= 0.004 < choice.usual.error
    assert "cheapest" in choice.reason


def test_what_need_not_be_split_is_not() -> None:
    samples, w = layer(6.5, 3)
    choice = choose_threshold(samples, w, target=0.5)
    assert choice.chosen.outliers == 0 and choice.chosen.threshold > 6.5
    assert choice.chosen.cost < choice.usual.cost


def test_the_closest_where_no_threshold_is_good_enough() -> None:
    samples, w = layer(6.5, 3)
    choice = choose_threshold(samples, w, target=1e-9)
    assert choice.chosen.error == min(trial.error for trial in choice.trials)
    assert "closest" in choice.reason


def test_samples_are_needed() -> None:
    _, w = layer(1, 0)
    with pytest.raises(InputError, match="found 0 samples"):
        choose_threshold([], w)
    assert choose_threshold([np.zeros((3, 80), np.float32)], w).chosen.error == 0
