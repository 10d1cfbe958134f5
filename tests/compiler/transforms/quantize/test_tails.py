"""Detectors keep their scores in 8 bits, although boxes in pixels share their output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.transforms.quantize import quantize
from tests.support.onnx_models import model, node, save, value

Floats = NDArray[np.float32]
_SIDE, _CELLS, _CLASSES, _STRIDE = 64, 8, 5, 8.0


def _detector(folder: Path, selects: bool) -> Graph:
    """Distances to the sides of boxes from each cell, and scores, as [1, 4 + classes, cells]; or
    with `selects` the best 10 as corners, score and class, [1, 10, 6], like YOLOv10's."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:_CELLS, :_CELLS] + 0.5
    centers = _STRIDE * np.stack([x, y]).reshape(1, 2, -1)
    constants = {
        "w": rng.normal(0, 0.25, (16, 3, 8, 8)), "b": rng.normal(0, 0.2, 16),
        "wd": rng.normal(0, 0.2, (4, 16, 1, 1)), "bd": np.full(4, 3.0),
        "ws": rng.normal(0, 0.6, (_CLASSES, 16, 1, 1)), "bs": np.full(_CLASSES, -1.0),
        "centers": centers, "stride": np.full(1, _STRIDE),
    }  # fmt: skip
    whole = {
        "flat": [1, -1, _CELLS**2], "two": [2, 2], "k": [10],
        "one": [1, 10, 1], "parts": [4, _CLASSES],
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], strides=[8, 8]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "wd", "bd"], ["d"]),
        node("Relu", ["d"], ["distances"]),
        node("Reshape", ["distances", "flat"], ["sides"]),
        node("Mul", ["sides", "stride"], ["pixels"]),
        node("Split", ["pixels", "two"], ["low", "high"], axis=1),
        node("Sub", ["centers", "low"], ["first"]),
        node("Add", ["centers", "high"], ["second"]),
        node("Concat", ["first", "second"], ["boxes"], axis=1),
        node("Conv", ["r", "ws", "bs"], ["s"]),
        node("Sigmoid", ["s"], ["shares"]),
        node("Reshape", ["shares", "flat"], ["scores"]),
        node("Concat", ["boxes", "scores"], ["y"], axis=1),
        *(_selection() if selects else ()),
    ]
    arrays = {name: np.asarray(a, np.float32) for name, a in constants.items()}
    arrays |= {name: np.asarray(a, np.int64) for name, a in whole.items()}
    given, output = [value("x", [1, 3, _SIDE, _SIDE])], "best" if selects else "y"
    return import_model(save(model(nodes, given, [output], arrays, opset=13), folder))


def _selection() -> list[Any]:
    return [
        node("Split", ["y", "parts"], ["corners", "each"], axis=1),
        node("ReduceMax", ["each"], ["most"], axes=[1], keepdims=0),
        node("ArgMax", ["each"], ["label"], axis=1, keepdims=0),
        node("TopK", ["most", "k"], ["score", "at"], axis=1),
        node("Reshape", ["at", "k"], ["place"]),
        node("Gather", ["label", "place"], ["named"], axis=1),
        node("Gather", ["corners", "place"], ["chosen"], axis=2),
        node("Transpose", ["chosen"], ["corner_rows"], perm=[0, 2, 1]),
        node("Cast", ["named"], ["number"], to=1),
        node("Reshape", ["score", "one"], ["score_rows"]),
        node("Reshape", ["number", "one"], ["label_rows"]),
        node("Concat", ["corner_rows", "score_rows", "label_rows"], ["best"], axis=2),
    ]


def _samples() -> list[dict[str, Floats]]:
    rng = np.random.default_rng(5)
    shape = (1, 3, _SIDE, _SIDE)
    return [{"x": rng.uniform(0, 1, shape).astype(np.float32)} for _ in range(24)]


def _free(graph: Graph) -> float:
    return 1.0 if any(t.dtype is DType.I8 for t in graph.tensors.values()) else 2.0


def _overlap(a: Floats, b: Floats) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    common = float(np.prod(np.maximum(high - low, 0)))
    return common / float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common)


@pytest.mark.slow
@pytest.mark.parametrize("selects", [False, True])
def test_boxes_and_scores_are_not_rounded_alike(tmp_path: Path, selects: bool) -> None:
    graph, samples = _detector(tmp_path, selects), _samples()
    made = quantize(graph, samples, _free, target=0.5).graph
    layers = [n for n in made.nodes if isinstance(n.op, ops.Conv2D)]
    assert len(layers) == 3
    assert all(made.tensors[n.outputs[0]].dtype is DType.I8 for n in layers)
    for sample in samples[:8]:
        (exact,), (found,) = (evaluate(g, sample).outputs.values() for g in (graph, made))
        if selects:
            _check_best(exact[0], found[0])
            continue
        assert np.abs(exact - found)[:, 4:].max() < 0.04
        overlaps = [_overlap(*both) for both in zip(exact[0, :4].T, found[0, :4].T, strict=True)]
        assert np.mean(overlaps) > 0.98 and min(overlaps) > 0.9


def _check_best(exact: Floats, found: Floats) -> None:
    """All but those whose scores are almost as low as those of boxes that are left out."""
    for row in exact[exact[:, 4] > exact[-1, 4] + 0.04]:
        alike = [other for other in found if other[5] == row[5]]
        near = max(alike, key=lambda other: _overlap(row[:4], other[:4]))
        assert _overlap(row[:4], near[:4]) > 0.95 and abs(near[4] - row[4]) < 0.04
