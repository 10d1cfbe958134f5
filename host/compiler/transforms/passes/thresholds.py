"""Chooses a layer's outlier threshold from samples by weighing accuracy against cost.

Each channel handled as an outlier makes the quantization of the others finer and adds to the
layer's cost. The benefit is limited by the error of the weights, which remains. So the chosen count
minimizes error * cost: a percent of the layer's squared error is worth a percent of its cost. If
accuracy is requested, cost decides only among splits with nearly the least error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.common.text import counted
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate, run_node
from edgekit.host.compiler.ir.types import Array, Graph, Node, Tensor

_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)  # numbers of outliers to try
_MOST_SHARE = 4  # if more than one channel in so many is an outlier, a split saves little
_NEAR = 1.1  # times the least squared error counts as equally good


@dataclass(frozen=True)
class OutlierSplit:
    """A threshold; the mean number of channels beyond it per sample; the squared error of outputs
    (including weight errors) relative to their squares; the layer's cost with that many outlier
    channels, in microseconds."""

    threshold: float
    outliers: int
    error: float
    cost: float


@dataclass(frozen=True)
class FittedSplit:
    """The chosen split of a product, and all splits tried, by increasing number of outliers."""

    chosen: OutlierSplit
    tried: tuple[OutlierSplit, ...]


def choose(
    samples: Sequence[Array],
    weights: Array,
    stored: Array,
    cost: Callable[[int], float],
    accurate: bool,
) -> FittedSplit:
    """Choose the split of a product of activations [rows, k] and `weights` [n, k], which are
    `stored` with rounding errors.

    `cost`: microseconds of the layer by number of outlier channels. `accurate`: consider only
    splits with nearly the least error.
    """
    right = [x @ weights.T for x in samples]
    size = sum(_sum_squares(y) for y in right)
    kept = sum(_sum_squares(x @ stored.T - y) for x, y in zip(samples, right, strict=True))
    tried = []
    for threshold in _candidate_thresholds(samples):
        wrong = sum(_sum_squares((_quantize_rows(x, threshold) - x) @ weights.T) for x in samples)
        outliers = [np.count_nonzero(np.abs(x).max(axis=0) > threshold) for x in samples]
        count = round(float(np.mean(outliers)))
        error = (wrong + kept) / size if size else 0.0
        tried.append(OutlierSplit(threshold, count, error, cost(count)))
    most = _NEAR * min(split.error for split in tried) if accurate else np.inf
    fit = [split for split in tried if split.error <= most]
    return FittedSplit(min(fit, key=lambda split: split.error * split.cost), tuple(tried))


def split_note(splits: Mapping[str, FittedSplit]) -> str:
    """Describe the splits of all products (at least one)."""
    apart = [each.chosen.outliers for each in splits.values()]
    cost = sum(each.chosen.cost for each in splits.values())
    plain = sum(each.tried[0].cost for each in splits.values())
    return (
        f"outliers: {sum(map(bool, apart))} of {len(apart)} products compute "
        f"{counted(sum(apart), 'channel')} separately, at {cost / plain:.2f} times the cost without"
    )


def fixed_note(graph: Graph, inputs: Mapping[str, Array]) -> str | None:
    """Describe the thresholds of products that were not fitted to samples, and those that are
    doubled at run time for `inputs`; None if there are no outlier products."""
    taken: dict[str, tuple[float, float]] = {}
    share = 1

    def run(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> list[Array]:
        nonlocal share
        if isinstance(node.op, ops.OutlierFullyConnected):
            share = node.op.share
            k = tensors[node.inputs[1] or ""].shape[1]
            rows = values[node.inputs[0] or ""].reshape(-1, k)
            taken[node.name] = node.op.threshold, node.op.threshold_for(rows)
        return run_node(node, tensors, values)

    evaluate(graph, inputs, runner=run)
    if not taken:
        return None
    [first, *_] = (fixed for fixed, _ in taken.values())
    raised = [found for fixed, found in taken.values() if found > fixed]
    note = (
        f"; golden inputs exceed it in {len(raised)} of them in more than 1 of {share} "
        f"channels, so it is doubled at run time, to {min(raised):g}"
        if raised
        else ""
    )
    note += f" to {max(raised):g}" if len({*raised}) > 1 else ""
    return (
        f"outliers: without --samples, channels beyond {first:g} are computed separately "
        f"in {counted(len(taken), 'product')}{note}"
    )


def _sum_squares(values: Array) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def _candidate_thresholds(samples: Sequence[Array]) -> Iterator[float]:
    """Midpoints between the largest values of two channels each, in descending order."""
    falling = np.sort(np.max([np.abs(x).max(axis=0) for x in samples], axis=0))[::-1]
    yield float(2 * falling[0] + 1)
    for count in _COUNTS[1:]:
        if count * _MOST_SHARE > len(falling):
            break
        if 0 < falling[count] < falling[count - 1]:
            yield float(falling[count - 1] + falling[count]) / 2


def _quantize_rows(x: Array, threshold: float) -> Array:
    """Emulate the operator's rounding of x [rows, k]: exact outliers, one scale per row."""
    out = np.abs(x).max(axis=0) > threshold
    inside = np.where(out, np.float32(0), x)
    step = np.abs(inside).max(axis=1, keepdims=True) / np.float32(127)
    step = np.maximum(step, np.finfo(np.float32).tiny)
    return np.where(out, x, np.rint(inside / step) * step).astype(np.float32)
