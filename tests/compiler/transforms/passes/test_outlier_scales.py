"""The outlier split without samples, on inputs of any scale, with and without outlier channels."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, ShapeError, Tensor
from edgekit.host.compiler.transforms.passes.compress import compress_weights
from tests.support.kernel_runs import build, run_here, x86_boards
from tests.support.places import few_or_all

_ROWS, _FAR = 9, (3, 40)
_SCALES = (0.01, 1.0, 255.0, 1e4)


def _layer(k: int) -> Graph:
    w = np.random.default_rng(k).standard_normal((24, k)).astype(np.float32)
    tensors = {
        "x": Tensor("x", (_ROWS, k), DType.F32),
        "w": Tensor("w", w.shape, DType.F32, None, w),
        "y": Tensor("y", (_ROWS, len(w)), DType.F32),
    }
    dense = Node("dense", ops.FullyConnected(keep_dims=True), ("x", "w"), ("y",))
    return Graph("layer", tensors, (dense,), ("x",), ("y",))


def _rows(k: int, scale: float, far: bool) -> Array:
    x = np.random.default_rng(1).uniform(0, 1, (_ROWS, k))
    if far:
        x[:, _FAR] *= 40
    return (x * scale).astype(np.float32)


def _apart(graph: Graph, x: Array) -> list[int]:
    """The channels that the split treats as outliers."""
    op = graph.nodes[0].op
    assert isinstance(op, ops.OutlierFullyConnected)
    found: Array = ~(np.abs(x).max(axis=0) <= op.threshold_for(x))
    return [int(c) for c in np.flatnonzero(found)]


def _off(made: Array, right: Array) -> float:
    a, b = made.astype(np.float64), right.astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.slow
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("scale", _SCALES)
def test_inputs_of_any_scale_are_mostly_bytes(scale: float, far: bool, tmp_path: Path) -> None:
    """Outlier channels are 40 times as large; if they stay below the threshold of 6, none is
    split."""
    graph, x = _layer(96), _rows(96, scale, far)
    quantized = compress_weights(graph, "int8")
    exact = evaluate(graph, {"x": x}).outputs["y"]
    expected = evaluate(quantized, {"x": x}).outputs["y"]
    assert _apart(quantized, x) == (list(_FAR) if far and scale >= 1 else [])
    assert _off(expected, exact) < 0.02
    for board in x86_boards():
        made = run_here(build(quantized, board, tmp_path / board.simd), {"x": x})["y"]
        assert _off(made, expected) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "threshold"),
    few_or_all(
        itertools.product((1, 5, 33, 1030), (1e-30, 0.7, 3e38)),
        [(1, 0.7), (5, 3e38), (33, 0.7), (1030, 1e-30)],
    ),
)
def test_a_quarter_of_the_channels_at_most_is_apart(
    k: int, threshold: float, tmp_path: Path
) -> None:
    """Channels of magnitudes from 2^-30 to 2^60; then all channels also contain a NaN or infinity,
    and the rows with those are ignored."""
    quantized = compress_weights(_layer(k), "int8")
    split = ops.OutlierFullyConnected(threshold, keep_dims=True)
    quantized = dataclasses.replace(
        quantized, nodes=(dataclasses.replace(quantized.nodes[0], op=split),)
    )
    rng = np.random.default_rng(k)
    x = rng.uniform(-1, 1, (_ROWS, k)) * np.exp2(rng.uniform(-30, 60, k))
    x = x.astype(np.float32)
    assert len(_apart(quantized, x)) <= k // 4
    for bad in (False, True):
        if bad:
            x[-2, ::2], x[-1, 1::2] = np.nan, np.inf
            assert len(_apart(quantized, x)) == k
        expected = evaluate(quantized, {"x": x}).outputs["y"][:-2]
        for board in x86_boards():
            folder = tmp_path / f"{board.simd}{bad}"
            made = run_here(build(quantized, board, folder), {"x": x})["y"][:-2]
            assert _off(made, expected) < 1e-5


@pytest.mark.parametrize("threshold", [0.0, 1e-60, -1.0, float("nan")])
def test_a_threshold_is_above_0(threshold: float) -> None:
    quantized = compress_weights(_layer(8), "int8")
    ins = [quantized.tensors[name] if name else None for name in quantized.nodes[0].inputs]
    with pytest.raises(ShapeError, match="expected a threshold above 0"):
        ops.OutlierFullyConnected(threshold).infer(ins)
