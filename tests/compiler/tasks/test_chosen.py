"""Detectors whose files choose the best class of each box, but not between boxes, against a decoder
in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, built, scattered
from tests.support.onnx_models import node

_SIZE = (64, 96)
_CELLS = 8 * 12 + 4 * 6 + 2 * 3
_CLASSES = 80


def _parts(count=_CELLS):
    """Centers and sizes of boxes, and scores of classes."""
    rng = np.random.default_rng(5)
    return scattered(count, _SIZE, 5), rng.random((count, _CLASSES)).astype(np.float32) ** 200


def _corners(boxes):
    half = boxes[:, 2:] / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)


def _chosen(keep):
    """What finds the best score and class, as PyTorch exports max()."""
    return [node("ReduceMax", ["classes"], ["score"], axes=[2], keepdims=keep),
            node("ArgMax", ["classes"], ["number"], axis=2, keepdims=keep)]  # fmt: skip


@pytest.mark.parametrize(("joined", "decodes"), [(True, False), (True, True), (False, False)])
def test_boxes_of_deepstream(tmp_path, joined, decodes):
    """Where boxes and scores were apart before, the network may take other pixels."""
    boxes, scores = _parts()
    parts = {"all": np.concatenate([_corners(boxes), scores], 1)[None], "corners": boxes[None],
             "scores": scores[None], "four": np.array([4, _CLASSES])}  # fmt: skip
    split = node("Split", ["all", "four"], ["corners", "classes"], axis=2)
    if joined:
        del parts["corners"]
    nodes = [
        split if joined else node("Identity", ["scores"], ["classes"]),
        *_chosen(1),
        node("Cast", ["number"], ["label"], to=1),
        node("Concat", ["corners", "score", "label"], ["output"], axis=2),
    ]
    if decodes:
        nodes.insert(0, node("Exp", ["mean"], ["power"]))
    made = prepared(built(tmp_path, parts, nodes, ["output"], _SIZE))
    if not joined:
        assert made.task is None and "its outputs are not known ones" in made.source
        return
    assert made.task is not None and made.task.labels[16] == "dog"
    assert "labels of COCO because there are 80 classes" in made.source
    assert (made.task.fit, made.task.channels) == (("corner", "bgr") if decodes else
                                                   ("letterbox", "rgb"))  # fmt: skip
    same(rows_of(made), best_boxes(boxes, scores, 0.25, 0.7))


@pytest.mark.parametrize("centers", [True, False])
def test_boxes_of_earlier_files_for_deepstream(tmp_path, centers):
    """Those of other networks are corners, which are not told apart by shapes."""
    boxes, scores = _parts()
    corners = _corners(boxes)
    parts = {"low": corners[None, :, :2], "high": corners[None, :, 2:], "each": scores[None],
             "two": np.float32([2]), "four": np.array([4, _CLASSES])}  # fmt: skip
    nodes = [
        node("Add", ["low", "high"], ["sum"]), node("Div", ["sum", "two"], ["center"]),
        node("Sub", ["high", "low"], ["size"]),
        node("Concat", ["center", "size"] if centers else ["low", "high"], ["box"], axis=2),
        node("Concat", ["box", "each"], ["all"], axis=2),
        node("Split", ["all", "four"], ["boxes", "classes"], axis=2), *_chosen(1),
        node("Identity", ["score"], ["scores"]), node("Cast", ["number"], ["labels"], to=1),
    ]  # fmt: skip
    made = prepared(built(tmp_path, parts, nodes, ["boxes", "scores", "labels"], _SIZE))
    assert (made.task is not None) == centers
    if centers:
        same(rows_of(made), best_boxes(boxes, scores, 0.25, 0.7))


@pytest.mark.parametrize("masks", [False, True])
def test_boxes_of_qualcomm(tmp_path, masks):
    boxes, scores = _parts()
    parts = {"boxes": _corners(boxes)[None], "classes": scores[None]}
    names = ["boxes", "scores", "class_idx"]
    nodes = [*_chosen(0), node("Identity", ["score"], ["scores"]),
             node("Cast", ["number"], ["class_idx"], to=2)]  # fmt: skip
    if masks:
        maps = np.random.default_rng(2).normal(0, 1, (1, 6, 16, 24)).astype(np.float32)
        weights = np.random.default_rng(3).normal(0, 1, (1, _CELLS, 6)).astype(np.float32)
        parts |= {"masks": weights, "protos": maps}
        names = ["boxes", "scores", "masks", "class_idx", "protos"]
    made = prepared(built(tmp_path, parts, nodes, names, _SIZE))
    expected = best_boxes(boxes, scores, 0.25, 0.7)
    assert made.task is not None and made.task.labels[16] == "dog"
    assert made.task.kind == ("instances" if masks else "detect")
    if not masks:
        same(rows_of(made), expected)
        return
    x = {"images": np.zeros((1, 3, *_SIZE), np.float32)}
    found = evaluate(made.graph, x).outputs
    rows = found[made.task.output].reshape(-1, 7 + 6)
    (at,) = np.flatnonzero(scores.max(1) == np.float32(expected[0][1]))
    np.testing.assert_allclose(rows[0, 7:], weights[0, at], atol=1e-6)
    assert found[made.task.masks].shape[1:] == (16, 24)


def test_categories_of_qualcomm(tmp_path):
    """DETR's, whose queries are no overlapping boxes."""
    logits = np.full((1, 9, 91), -9, np.float32)
    logits[0, 2, 18], logits[0, 3, 18] = 0.9, 0.8
    corners = np.tile(np.float32([10, 20, 30, 40]), (1, 9, 1))
    nodes = [*_chosen(0), node("Identity", ["score"], ["logits"]),
             node("Cast", ["number"], ["kinds"], to=6)]  # fmt: skip
    path = built(tmp_path, {"boxes": corners, "classes": logits}, nodes,
                 ["boxes", "logits", "kinds"], _SIZE)  # fmt: skip
    assert prepared(path).task is None
    nodes = [node("ReduceMax", ["all"], ["logits"], axes=[2], keepdims=0),
             node("ArgMax", ["all"], ["number"], axis=2, keepdims=0),
             node("Cast", ["number"], ["classes"], to=6)]  # fmt: skip
    made = prepared(built(tmp_path, {"boxes": corners, "all": logits}, nodes,
                          ["boxes", "logits", "classes"], _SIZE))  # fmt: skip
    assert made.task is not None and made.task.labels[18] == "dog"
    found = [each for each in rows_of(made) if each[1] > 0]
    same(found, [(18, 0.9, (10, 20, 30, 40)), (18, 0.8, (10, 20, 30, 40))])


def test_the_main_branch_of_yolov9_counts(tmp_path):
    boxes, scores = _parts()
    parts = {"b": boxes.T[None], "s": scores.T[None]}
    parts |= {f"other.{name}": value[..., ::-1].copy() for name, value in parts.items()}
    nodes = [node("Concat", ["other.b", "other.s"], ["output0"], axis=1),
             node("Concat", ["b", "s"], ["2731"], axis=1)]  # fmt: skip
    made = prepared(built(tmp_path, parts, nodes, ["output0", "2731"], _SIZE))
    assert made.task is not None and "'2731' is like YOLOv8's" in made.source
    same(rows_of(made), best_boxes(boxes, scores, 0.25, 0.7))


def test_two_classes_of_rt_detr_are_no_score_and_class(tmp_path):
    box = np.tile(np.float32([0.5, 0.5, 0.25, 0.5]), (1, 9, 1))
    logits = np.full((1, 9, 2), -9, np.float32)
    logits[0, 4, 1] = 3
    nodes = [node("Sigmoid", ["logits"], ["scores"]),
             node("Concat", ["box", "scores"], ["output0"], axis=2)]  # fmt: skip
    made = prepared(built(tmp_path, {"box": box, "logits": logits}, nodes, ["output0"], _SIZE))
    assert made.task is not None and made.task.fit == "stretch"
    same(rows_of(made), [(1, 1 / (1 + np.exp(-3)), (36, 16, 60, 48))])
