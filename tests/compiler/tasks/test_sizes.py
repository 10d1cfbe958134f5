"""Detectors that take the size of the picture, or which of its pixels count, as further inputs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, built, scattered
from tests.support.onnx_models import model, node, save, value

_SIZE = (64, 96)
_CORNERS = np.array([[10, 8, 40, 40], [50, 20, 90, 60], [2, 2, 8, 8]], np.float32)


def _with_inputs(folder, inputs, nodes, outputs, constants):
    """A model whose constant outputs depend on a picture, for those nodes that add `none`."""
    first = [
        node("ReduceMean", ["images"], ["mean"], keepdims=0),
        node("Mul", ["mean", "zero"], ["none"]),
    ]
    picture = value("images", [1, 3, *_SIZE])
    more = {**constants, "zero": np.zeros(1, np.float32)}
    made = model([*first, *nodes], [picture, *inputs], outputs, more, opset=13)
    kinds = {"labels": 7, "count": 6, "indices": 7}
    for each in made.graph.output:
        each.type.tensor_type.elem_type = kinds.get(each.name, 1)
    return save(made, folder)


def _d_fine(folder, classes):
    """The end of RT-DETR's and D-FINE's files: the best scores of all queries and classes."""
    rng = np.random.default_rng(classes)
    logits = rng.normal(-1, 2, (1, 3, classes)).astype(np.float32)
    shares = 1 / (1 + np.exp(-logits[0].astype(float)))
    order = np.argsort(-shares.reshape(-1))[:6]
    expected = [
        (int(i % classes), float(shares.reshape(-1)[i]), tuple(_CORNERS[i // classes].tolist()))
        for i in order
        if shares.reshape(-1)[i] >= 0.25
    ]
    nodes = [
        node("Add", ["logits", "none"], ["own"]),
        node("Sigmoid", ["own"], ["shares"]),
        node("Flatten", ["shares"], ["flat"], axis=1),
        node("TopK", ["flat", "six"], ["scores", "places"], axis=-1),
        node("Div", ["places", "classes"], ["query"]),
        node("Mul", ["query", "classes"], ["before"]),
        node("Sub", ["places", "before"], ["labels"]),
        node("Cast", ["orig_target_sizes"], ["sizes"], to=1),
        node("Tile", ["sizes", "twice"], ["units"]),
        node("Unsqueeze", ["units", "one"], ["unit"]),
        node("Mul", ["relative", "unit"], ["wide"]),
        node("Unsqueeze", ["query", "two"], ["column"]),
        node("Tile", ["column", "four"], ["columns"]),
        node("GatherElements", ["wide", "columns"], ["boxes"], axis=1),
    ]
    constants = {
        "logits": logits, "six": np.array([6]), "classes": np.array(classes),
        "twice": np.array([1, 2]), "one": np.array([1]), "two": np.array([2]),
        "four": np.array([1, 1, 4]), "relative": (_CORNERS / [96, 64, 96, 64]).astype("f4")[None],
    }  # fmt: skip
    sizes = [value("orig_target_sizes", ["N", 2], "s64")]
    path = _with_inputs(folder, sizes, nodes, ["labels", "boxes", "scores"], constants)
    return path, expected


@pytest.mark.parametrize("classes", [3, 80])
def test_rt_detr_scales_its_boxes_by_the_size_it_is_given(tmp_path, classes):
    path, expected = _d_fine(tmp_path, classes)
    made = prepared(path)
    assert made.graph.inputs == ("images",) and len(expected) > 1
    assert any("'orig_target_sizes'" in note for note in made.graph.notes)
    assert made.task is not None and made.task.scale == (255,) and made.task.fit == "stretch"
    assert len(made.task.labels) == (80 if classes == 80 else 0)
    found = [row for row in rows_of(made) if row[1] >= 0.25]
    same(found, expected)
    assert prepared(path, CompileOptions(task="none")).graph.inputs == (
        "images", "orig_target_sizes",
    )  # fmt: skip


_YML = """mode: paddle
Preprocess:
- interp: 2
  keep_ratio: {}
  target_size:
  - 64
  - 96
  type: Resize
- mean: [0.485, 0.456, 0.406]
  std: [0.229, 0.224, 0.225]
  type: NormalizeImage
- type: Permute
label_list:
- cat
- 'dog: a pet'
- bird
"""


def test_rows_of_paddle_detection_need_its_configuration(tmp_path):
    """It says how pixels become values, which the model does not show."""
    rows = [(n, 0.9 - n / 4, *corners) for n, corners in enumerate(_CORNERS)]
    nodes = [
        node("Add", ["found", "none"], ["sum"]),
        node("Concat", ["scale_factor", "scale_factor"], ["scales"], axis=1),
        node("Split", ["sum", "parts"], ["front", "wide"], axis=1),
        node("Div", ["wide", "scales"], ["corners"]),
        node("Concat", ["front", "corners"], ["rows"], axis=1),
        node("Cast", ["none"], ["no"], to=6),
        node("Add", ["no", "two"], ["count"]),
    ]
    constants = {
        "found": np.array(rows, np.float32), "parts": np.array([2, 4]),
        "two": np.array([2], np.int32),
    }  # fmt: skip
    scale = [value("scale_factor", [1, 2])]
    path = _with_inputs(tmp_path, scale, nodes, ["rows", "count"], constants)
    unsure = prepared(path)
    assert unsure.task is None and "put it next to m.onnx" in unsure.source
    (tmp_path / "infer_cfg.yml").write_text(_YML.format("true"))
    with pytest.raises(InputError, match=r"infer_cfg\.yml, which PaddleDetection exports: put it"):
        prepared(path, CompileOptions(task="detect"))
    (tmp_path / "infer_cfg.yml").write_text(_YML.format("false"))
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("cat", "dog: a pet", "bird")
    assert made.task.mean == pytest.approx((123.675, 116.28, 103.53))
    assert "infer_cfg.yml" in made.source and made.graph.inputs == ("images",)
    same(rows_of(made), [(n, score, tuple(corners)) for n, score, *corners in rows[:2]])


def test_a_mask_of_pixels_is_full(tmp_path):
    """Hugging Face's DETR takes one; its boxes are those of the whole picture."""
    logits = np.full((1, 3, 4), -5, np.float32)
    logits[0, :, 3], logits[0, 1, 2] = 3, 8
    middle, sides = (_CORNERS[:, :2] + _CORNERS[:, 2:]) / 2, _CORNERS[:, 2:] - _CORNERS[:, :2]
    nodes = [
        node("Cast", ["pixel_mask"], ["mask"], to=1),
        node("ReduceMin", ["mask"], ["least"], keepdims=0),
        node("Mul", ["boxes", "least"], ["pred_boxes"]),
        node("Add", ["own", "none"], ["logits"]),
    ]
    relative = np.concatenate([middle, sides], 1) / [96, 64, 96, 64]
    constants = {"own": logits, "boxes": relative.astype(np.float32)[None]}
    for size, is_known in (([1, 8, 12], True), ([2, 8, 12], False)):
        mask = [value("pixel_mask", size, "s64")]
        path = _with_inputs(tmp_path, mask, nodes, ["logits", "pred_boxes"], constants)
        about = {"model_type": "detr", "id2label": {"0": "cat", "1": "dog", "2": "bird"}}
        (tmp_path / "config.json").write_text(json.dumps(about))
        made = prepared(path)
        assert (made.task is not None) == is_known
        if is_known:
            share = np.exp(8) / (np.exp(8) + np.exp(3) + 2 * np.exp(-5))
            same(rows_of(made), [(2, share, tuple(_CORNERS[1].tolist()))])


@pytest.mark.parametrize("classes", [3, 80])
def test_yolov3_of_keras_takes_height_and_width(tmp_path, classes):
    """As in the ONNX model zoo: which of its boxes the file selects is a third output."""
    rng = np.random.default_rng(classes)
    boxes, scores = scattered(60, _SIZE, 3), (rng.random((60, classes)) ** 8).astype(np.float32)
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    relative = corners[None, :, [1, 0, 3, 2]] / [64, 96, 64, 96]
    nodes = [
        node("Concat", ["image_shape", "image_shape"], ["sides"], axis=1),
        node("Unsqueeze", ["sides", "one"], ["unit"]),
        node("Mul", ["relative", "unit"], ["wide"]),
        node("Add", ["wide", "none"], ["boxes"]),
        node("Add", ["own", "none"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["found"]),
        node("Unsqueeze", ["found", "zeroth"], ["indices"]),
    ]
    constants = {
        "one": np.array([1]), "zeroth": np.array([0]), "most": np.array([20]),
        "overlap": np.array([0.45], np.float32), "least": np.array([0.3], np.float32),
        "relative": relative.astype(np.float32), "own": scores.T[None],
    }  # fmt: skip
    shape = [value("image_shape", [1, 2])]
    outputs = ["boxes", "scores", "indices"]
    path = _with_inputs(tmp_path, shape, nodes, outputs, constants)
    made = prepared(path)
    assert made.graph.inputs == ("images",) and made.task is not None
    assert (made.task.fit, made.task.fill) == ("letterbox", 128)
    assert len(made.task.labels) == (80 if classes == 80 else 0)
    expected = best_boxes(boxes, scores, 0.3, 0.45, single=False)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])


@pytest.mark.parametrize(("classes", "done"), [(4, False), (91, False), (91, True)])
def test_rf_detr_names_its_logits_labels(tmp_path, classes, done):
    """`done`: its file ends in a sigmoid, which is not computed again."""
    logits = np.full((1, 9, classes), -9, np.float32)
    logits[0, 4, 1] = 2
    boxes = np.full((1, 9, 4), 0.5, np.float32)
    parts = {"dets": boxes, "logits": logits}
    nodes = [node("Sigmoid" if done else "Identity", ["logits"], ["labels"])]
    made = prepared(built(tmp_path, parts, nodes, ["dets", "labels"], _SIZE))
    assert made.task is not None and made.task.mean == (123.675, 116.28, 103.53)
    assert made.task.labels[:2] == (("", "person") if classes == 91 else ())
    same(rows_of(made), [(1, 1 / (1 + np.exp(-2)), (24, 16, 72, 48))])
