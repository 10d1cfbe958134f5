"""Scores of classes: shares from 0 to 1, whether or not the model ends in a softmax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import built
from tests.support.onnx_models import node

_SIZE = (64, 64)
_LOGITS = np.array([[2.0, -1.0, 5.5, 0.25]], np.float32)
_SOFTMAX = np.exp(_LOGITS - 5.5) / np.exp(_LOGITS - 5.5).sum()
_SIGMOID = 1 / (1 + np.exp(-_LOGITS))
_PARTS = {"x": _LOGITS, "half": np.full(1, 0.5, np.float32), "flat": np.array([1, 4, 1, 1])}
_EXP = [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e"], ["s"])]


def _scores(folder: Path, *nodes: Any, also: dict[str, Array] | None = None) -> tuple[Array, bool]:
    """The scores of a classifier that ends in these nodes, and whether they are its own output."""
    path = built(folder, {**_PARTS, **(also or {})}, list(nodes), ["y"], _SIZE)
    (folder / "m.txt").write_text("cat\ndog\nhat\ncup\n")
    made = prepared(path)
    assert made.task is not None and made.task.kind == "classify"
    picture = np.zeros((1, 3, *_SIZE), np.float32)
    own = made.task.output == "y"
    assert own is ("scores are a" not in made.source)
    return evaluate(made.graph, {"images": picture}).outputs[made.task.output].reshape(1, -1), own


@pytest.mark.parametrize(
    ("nodes", "expected", "own"),
    [
        ([node("Identity", ["x"], ["y"])], _SOFTMAX, False),
        ([node("Reshape", ["x", "flat"], ["y"])], _SOFTMAX, False),
        ([node("LogSoftmax", ["x"], ["y"])], _SOFTMAX, False),
        ([node("Softmax", ["x"], ["z"]), node("Log", ["z"], ["y"])], _SOFTMAX, False),
        ([node("Softmax", ["x"], ["y"])], _SOFTMAX, True),
        ([node("Sigmoid", ["x"], ["y"])], _SIGMOID, True),
        ([*_EXP, node("Div", ["e", "s"], ["y"])], _SOFTMAX, True),
        ([node("Sigmoid", ["x"], ["z"]), node("Clip", ["z", "", "half"], ["y"])],
         np.minimum(_SIGMOID, 0.5), False),
        ([node("Softmax", ["x"], ["a"]), node("Sigmoid", ["x"], ["b"]),
          node("Add", ["a", "b"], ["c"]), node("Mul", ["c", "c.half"], ["y"])],
         (_SOFTMAX + _SIGMOID) / 2, True),
    ],
)  # fmt: skip
def test_scores_are_shares(tmp_path, nodes, expected, own):
    found, is_own = _scores(tmp_path, *nodes)
    if "Clip" in {each.op_type for each in nodes}:  # the lower limit is not stated
        expected = np.exp(expected) / np.exp(expected).sum()
    assert is_own is own
    assert found == pytest.approx(expected, abs=1e-5)


def test_classes_that_may_be_right_at_once_get_a_sigmoid(tmp_path):
    names = {str(i): f"thing {i}" for i in range(4)}
    about = {"model_type": "vit", "id2label": names, "problem_type": "multi_label_classification"}
    (tmp_path / "config.json").write_text(json.dumps(about))
    found, own = _scores(tmp_path, node("Identity", ["x"], ["y"]))
    assert not own and found == pytest.approx(_SIGMOID, abs=1e-5)


@pytest.mark.parametrize(("step", "own"), [(1 / 256, True), (0.05, False)])
def test_quantized_scores(tmp_path, step, own):
    """Those whose type holds 0 to 1 only, as of a softmax that is not in the file, and logits."""
    also = {"step": np.array(step, np.float32)}
    nodes = [
        node("QuantizeLinear", ["x", "c.step"], ["q"]),
        node("DequantizeLinear", ["q", "c.step"], ["y"]),
    ]
    found, is_own = _scores(tmp_path, *nodes, also=also)
    assert is_own is own and float(found.max()) <= 1


def test_the_share_of_one_of_two_classes(tmp_path):
    parts = {"x": np.float32([[1.5]])}
    path = built(tmp_path, parts, [node("Sigmoid", ["x"], ["y"])], ["y"], _SIZE)
    assert prepared(path).task is None
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("cat", "dog")
    assert "'y' is the share of the second of 2 classes, with labels of labels.txt" in made.source
    found = evaluate(made.graph, {"images": np.zeros((1, 3, *_SIZE), np.float32)})
    second = 1 / (1 + np.exp(-1.5))
    assert found.outputs[made.task.output] == pytest.approx(np.float32([[1 - second, second]]))


def test_vectors_of_length_1_are_no_classes(tmp_path):
    """Even if they are as long as ImageNet's classes are many."""
    parts = {"x": np.ones((1, 1000), np.float32)}
    nodes = [node("ReduceL2", ["x"], ["l"], axes=[1]), node("Div", ["x", "l"], ["y"])]
    assert prepared(built(tmp_path, parts, nodes, ["y"], _SIZE)).task is None
    nodes = [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e"], ["s"]),
             node("Div", ["e", "s"], ["y"])]  # fmt: skip
    assert prepared(built(tmp_path, parts, nodes, ["y"], _SIZE)).task is not None


def test_the_best_class_next_to_shares_is_left_out(tmp_path):
    parts = {"x": np.arange(1000, dtype=np.float32)[None]}
    nodes = [node("Softmax", ["x"], ["y"], axis=1), node("ArgMax", ["x"], ["best"], axis=1)]
    made = prepared(built(tmp_path, parts, nodes, ["best", "y"], _SIZE))
    assert made.task is not None and (made.task.kind, made.task.output) == ("classify", "y")


@pytest.mark.parametrize("size", [96, 64])
def test_the_sex_of_a_face_by_insight_face(tmp_path, size):
    """The third value is the age; other sizes of pictures may be of any three classes."""
    parts = {"x": np.array([[1.0, 3.0, 0.4]], np.float32)}
    made = prepared(built(tmp_path, parts, [node("Identity", ["x"], ["fc1"])], ["fc1"], [size] * 2))
    if size != 96:
        assert made.task is None
        return
    assert made.task is not None and made.task.labels == ("female", "male")
    picture = np.zeros((1, 3, size, size), np.float32)
    scores = evaluate(made.graph, {"images": picture}).outputs[made.task.output]
    assert scores[0, 1] == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-5)
