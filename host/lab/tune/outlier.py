"""Chooses the threshold of a layer's outlier split from sample activations: error against cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.arrays.outlier import THRESHOLD, OutlierWeights, outlier_matmul
from edgekit.host.errors import InputError

_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # outliers to try
_MOST_SHARE = 4  # try at most 1/4 of the channels: beyond that, a split saves little
_TARGET = 0.01


@dataclass(frozen=True)
class Trial:
    """A threshold evaluated on the samples: mean outliers per sample, relative error (Frobenius)
    against the product with dequantized weights, and cost in float multiply-adds."""

    threshold: float
    outliers: float
    error: float
    cost: float


@dataclass(frozen=True)
class ThresholdChoice:
    """The chosen trial and why; `usual` is the default threshold's, `trials` are all, by cost."""

    chosen: Trial
    reason: str
    usual: Trial
    trials: tuple[Trial, ...]


def choose_threshold(
    samples: Sequence[NDArray[Any]], weights: OutlierWeights, target: float = _TARGET
) -> ThresholdChoice:
    """The least costly threshold with an error of at most `target`, or else that of least error.

    samples: activations [rows, k] of the layer, float32 or float16. Raises InputError if there are
    none, and what outlier_matmul raises.
    """
    samples = [sample for sample in samples if sample.size]
    if not samples or not target > 0:
        raise InputError(
            "expected samples with rows and a target above 0 to choose a threshold, found "
            f"{len(samples)} samples and {target}"
        )
    whole = weights.dequantized()
    exact = [sample.astype(np.float32) @ whole for sample in samples]
    usual = _try_threshold(samples, weights, exact, THRESHOLD)
    tried = [
        _try_threshold(samples, weights, exact, each) for each in _candidate_thresholds(samples)
    ]
    trials = tuple(sorted((*tried, usual), key=lambda trial: (trial.cost, trial.error)))
    good = next((trial for trial in trials if trial.error <= target), None)
    if good:
        reason = f"the cheapest of {len(trials)} thresholds with an error of at most {target:.2%}"
        return ThresholdChoice(good, reason, usual, trials)
    least = min(trials, key=lambda trial: (trial.error, trial.cost))
    reason = f"no threshold comes below {target:.2%}; this one comes closest"
    return ThresholdChoice(least, reason, usual, trials)


def _candidate_thresholds(samples: Sequence[NDArray[Any]]) -> list[float]:
    """Thresholds midway between channels that are adjacent when sorted by largest magnitude."""
    largest = np.max([np.abs(s).max(axis=0).astype(np.float64) for s in samples], axis=0)
    falling = np.sort(largest)[::-1]
    found = []
    for count in _COUNTS:
        if count * _MOST_SHARE > len(falling):
            break
        above = falling[count - 1] if count else 2 * falling[0] + 1
        if falling[count] < above:
            found.append(float(above + falling[count]) / 2)
    return [each for each in found if each > 0]


def _try_threshold(
    samples: Sequence[NDArray[Any]],
    weights: OutlierWeights,
    exact: Sequence[NDArray[np.float32]],
    threshold: float,
) -> Trial:
    wrong = size = cost = outliers = 0.0
    for sample, right in zip(samples, exact, strict=True):
        found, about = outlier_matmul(sample, weights, threshold, path="split", explain=True)
        wrong += float(np.square(found - right, dtype=np.float64).sum())
        size += float(np.square(right, dtype=np.float64).sum())
        cost += about.report.split_cost
        outliers += about.outliers / len(samples)
    return Trial(threshold, outliers, (wrong / size) ** 0.5 if size else 0.0, cost)
