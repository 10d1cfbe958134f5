"""Means of distributions as exporters of detectors write them: one operator; near-matches stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(7)
_HEIGHT, _WIDTH = 3, 5


def _ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def _constants(bins: int) -> dict[str, Any]:
    steps = np.arange(bins, dtype=np.float32)
    return {
        "w": _RNG.standard_normal((4 * bins, 6, 1, 1)).astype(np.float32),
        "sides": _ints(1, 4, bins, -1), "back": _ints(1, 4, -1), "cells": _ints(-1, bins),
        "axis": _ints(1), "end": _ints(-1), "column": steps.reshape(1, -1, 1, 1),
        "line": steps, "matrix": steps.reshape(-1, 1), "bias": np.ones(1, np.float32),
        "zero": np.zeros(1, np.float32), "two": np.tile(steps, 2).reshape(2, -1, 1, 1),
        "mix": np.ones((bins, 2), np.float32),
    }  # fmt: skip


_HEAD = [node("Conv", ["x", "w"], ["c"]), node("Reshape", ["c", "sides"], ["r"])]
_BY_AXIS = [
    *_HEAD,
    node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
    node("Softmax", ["t"], ["p"], axis=1),
]
_LAST = [  # PyTorch's exporter before opset 13
    *_HEAD,
    node("Transpose", ["r"], ["t"], perm=[0, 3, 1, 2]),
    node("Softmax", ["t"], ["s"], axis=3),
    node("Transpose", ["s"], ["p"], perm=[0, 3, 2, 1]),
]
_CONVOLVED = [node("Conv", ["p", "column"], ["m"]), node("Reshape", ["m", "back"], ["y"])]
_ADDED = [
    node("Mul", ["p", "column"], ["m"]),
    node("ReduceSum", ["m", "axis"], ["y"], keepdims=0),
]
_ROWS = [
    node("Conv", ["x", "w"], ["c"]),
    node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
    node("Reshape", ["t", "cells"], ["r"]),
    node("Softmax", ["r"], ["p"], axis=-1),
]


def _prepared(nodes, bins, folder, opset=17, outputs=("y",)):
    shape = [1, 6, _HEIGHT, _WIDTH]
    inputs, path = [value("x", shape)], folder / "m.onnx"
    save(model(nodes, inputs, outputs, _constants(bins), opset), folder)
    x = 3 * _RNG.standard_normal(shape).astype(np.float32)
    imported = import_model(path)
    made, _ = run_passes(imported)
    before, after = (evaluate(g, {"x": x}).outputs for g in (imported, made))
    for name in outputs:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=1e-5)
    return made, path, {"x": x}, after


def _kinds(graph):
    return [n.op.kind for n in graph.nodes if n.op.kind != "reshape"]


@pytest.mark.parametrize(
    ("nodes", "bins", "opset"),
    [
        ([*_BY_AXIS, *_CONVOLVED], 16, 17),  # YOLOv8 to YOLO12
        ([*_BY_AXIS, *_ADDED], 16, 13),
        ([*_LAST, *_CONVOLVED], 8, 11),
        ([*_BY_AXIS, node("Conv", ["p", "column", "zero"], ["y"])], 17, 17),
        ([*_ROWS, node("MatMul", ["p", "line"], ["y"])], 8, 17),  # NanoDet
        ([*_ROWS, node("MatMul", ["p", "matrix"], ["y"])], 33, 17),
        ([*_ROWS, node("Mul", ["line", "p"], ["m"]), node("ReduceSum", ["m", "end"], ["y"])],
         7, 17),
    ],
)  # fmt: skip
def test_the_mean_of_a_distribution_is_one_operator(nodes, bins, opset, tmp_path):
    made, path, inputs, ours = _prepared(nodes, bins, tmp_path, opset)
    assert set(_kinds(made)) <= {"transpose", "conv2d", "softmax_mean"}
    assert _kinds(made).count("softmax_mean") == 1
    assert _kinds(made).count("transpose") <= 2  # at the ends
    engine = pytest.importorskip("onnxruntime")
    session = engine.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(ours["y"], session.run(None, inputs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("end", "outputs"),
    [
        (_CONVOLVED, ("y", "p")),  # the distribution is read elsewhere
        (_ADDED, ("y", "m")),
        ([node("Conv", ["p", "two"], ["y"])], ("y",)),  # two means
        ([node("Conv", ["p", "column", "bias"], ["y"])], ("y",)),
        ([node("Conv", ["p", "column"], ["y"], pads=[3, 14, 0, 0], strides=[2, 2])], ("y",)),
        ([node("Mul", ["p", "column"], ["m"]), node("ReduceMax", ["m"], ["y"], axes=[1])],
         ("y",)),
        ([node("Mul", ["p", "column"], ["m"]), node("ReduceSum", ["m", "end"], ["y"])], ("y",)),
        ([node("Mul", ["p", "zero"], ["m"]), node("ReduceSum", ["m", "axis"], ["y"])], ("y",)),
        ([node("Mul", ["p", "p"], ["m"]), node("ReduceSum", ["m", "axis"], ["y"])], ("y",)),
        ([node("Mul", ["p", "t"], ["m"]), node("ReduceSum", ["m", "axis"], ["y"])], ("y",)),
    ],
)  # fmt: skip
def test_what_only_looks_like_it_stays(end, outputs, tmp_path):
    made, *_ = _prepared([*_BY_AXIS, *end], 16, tmp_path, outputs=outputs)
    assert "softmax_mean" not in _kinds(made)
