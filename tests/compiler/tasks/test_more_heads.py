"""Heads that differ in more than shapes, and those that cannot be told apart."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, built, detector, scattered
from tests.support.onnx_models import node

_SIZE = (64, 96)
_GRIDS = [(8, 8, 12), (16, 4, 6), (32, 2, 3)]  # stride, rows, columns
_CLASSES = 3


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _cells(grids=_GRIDS):
    """Column, row and stride of each cell."""
    return [(x, y, s) for s, rows, columns in grids for y in range(rows) for x in range(columns)]


def _check(path: Path, name: str, boxes, scores, limits, option: str = "", **rule: bool) -> None:
    made = prepared(path, CompileOptions(task="detect", head=option))
    assert made.task is not None and name in made.source.lower()
    expected = best_boxes(np.asarray(boxes), np.asarray(scores, np.float32), *limits, **rule)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])


def _yolox(rng):
    """Regressions, certainty and scores of each grid before the sigmoid, and what they say."""
    levels, boxes, scores = {}, [], []
    for stride, rows, columns in _GRIDS:
        box = rng.normal(0, 0.5, (1, 4, rows, columns))
        box[:, 2:] += 0.7
        sure, each = (
            rng.normal(0, 3, (1, 1, rows, columns)),
            rng.normal(0, 3, (1, _CLASSES, rows, columns)),
        )
        names = f"box{stride}", f"sure{stride}", f"class{stride}"
        levels |= {n: v.astype(np.float32) for n, v in zip(names, (box, sure, each), strict=True)}
        for y, x in itertools.product(range(rows), range(columns)):
            tx, ty, tw, th = box[0, :, y, x]
            boxes.append(
                ((x + tx) * stride, (y + ty) * stride, math.exp(tw) * stride, math.exp(th) * stride)
            )
            scores.append(_sigmoid(sure[0, 0, y, x]) * _sigmoid(each[0, :, y, x]))
    return levels, boxes, scores


def _yolox_nodes():
    nodes, flat = [], []
    for stride, _, _ in _GRIDS:
        nodes += [
            node("Sigmoid", [f"sure{stride}"], [f"s{stride}"]),
            node("Sigmoid", [f"class{stride}"], [f"c{stride}"]),
            node("Concat", [f"box{stride}", f"s{stride}", f"c{stride}"], [f"l{stride}"], axis=1),
            node("Reshape", [f"l{stride}", "flat"], [f"f{stride}"]),
        ]
        flat.append(f"f{stride}")
    joined = node("Concat", flat, ["all"], axis=2)
    return [*nodes, joined, node("Transpose", ["all"], ["raw"], perm=[0, 2, 1])]


_FLAT = np.array([1, 5 + _CLASSES, -1])


def test_yolox_is_known_by_what_is_joined(tmp_path):
    levels, boxes, scores = _yolox(np.random.default_rng(0))
    path = built(tmp_path, {**levels, "flat": _FLAT}, _yolox_nodes(), ["raw"], _SIZE)
    _check(path, "yolox's, whose boxes are not decoded", boxes, scores, (0.3, 0.45), across=True)
    task = prepared(path).task
    assert task is not None and (task.fit, task.channels) == ("corner", "bgr")
    assert (task.mean, task.scale) == ((0.0,), (1.0,))


def test_yolox_that_decodes_its_boxes(tmp_path):
    levels, boxes, scores = _yolox(np.random.default_rng(1))
    grid = np.array([(x, y) for x, y, _ in _cells()], np.float32)[None]
    unit = np.array([[s] for *_, s in _cells()], np.float32)[None]
    parts = {**levels, "flat": _FLAT, "grid": grid, "unit": unit}
    parts["sizes"] = np.array([2, 2, 1 + _CLASSES])
    nodes = [
        node("Split", ["raw", "sizes"], ["xy", "wh", "rest"], axis=2),
        node("Add", ["xy", "grid"], ["at"]),
        node("Mul", ["at", "unit"], ["center"]),
        node("Exp", ["wh"], ["power"]),
        node("Mul", ["power", "unit"], ["size"]),
        node("Concat", ["center", "size", "rest"], ["output"], axis=2),
    ]
    path = built(tmp_path, parts, [*_yolox_nodes(), *nodes], ["output"], _SIZE)
    _check(path, "yolox's with decoded boxes", boxes, scores, (0.3, 0.45), across=True)


def test_yolov6_has_ones_for_object_scores(tmp_path):
    rng = np.random.default_rng(2)
    boxes = scattered(len(_cells()), _SIZE, 2)
    scores = rng.random((len(boxes), _CLASSES)).astype(np.float32)
    parts = {"box": boxes[None], "each": scores[None]}
    nodes = [
        node("Shape", ["box"], ["shape"]),
        node("Slice", ["shape", "zero_", "two"], ["cells"]),
        node("Concat", ["cells", "one"], ["ones_shape"], axis=0),
        node("ConstantOfShape", ["ones_shape"], ["ones"], value=_one()),
        node("Concat", ["box", "ones", "each"], ["outputs"], axis=2),
    ]
    parts |= {"zero_": np.array([0]), "two": np.array([2]), "one": np.array([1])}
    _check(built(tmp_path, parts, nodes, ["outputs"], _SIZE), "yolov6", boxes, scores, (0.4, 0.45))


def _one():
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ones(1, np.float32))


def test_what_cannot_be_told_apart_is_named_with_what_to_do(tmp_path):
    output = np.zeros((1, len(_cells()), 5 + _CLASSES), np.float32)
    path = detector(tmp_path, {"y": output}, _SIZE)
    said = "may be of yolox, yolox-decoded or yolov6, which decode boxes differently; name the "
    with pytest.raises(InputError, match=said):
        prepared(path, CompileOptions(task="detect"))
    made = prepared(path)
    assert made.task is None and said in made.graph.notes[-1] and made.graph.outputs == ("y",)
    task = prepared(path, CompileOptions(head="yolov6")).task
    assert task is not None and task.fit == "letterbox"
    with pytest.raises(InputError, match=r"--head: expected yolox or .* by the outputs, found"):
        prepared(path, CompileOptions(head="yolov5"))
    with pytest.raises(InputError, match="--head: expected --task detect with it"):
        CompileOptions(task="classify", head="yolov6")


_ANCHORS = {
    "yolov3": "10,13 16,30 33,23 30,61 62,45 59,119 116,90 156,198 373,326",
    "yolov5": "10,13 16,30 33,23 30,61 62,45 59,119 116,90 156,198 373,326",
    "yolov7": "12,16 19,36 40,28 36,75 76,55 72,146 142,110 192,243 459,401",
    "yolov3-tiny": "10,14 23,27 37,58 81,82 135,169 344,319",
    "yolov4": "12,16 19,36 40,28 36,75 76,55 72,146 142,110 192,243 459,401",
    "yolov4-tiny": "23,27 37,58 81,82 81,82 135,169 344,319",
}
_REACH = {"yolov4": (1.2, 1.1, 1.05), "yolov4-tiny": (1.05, 1.05)}  # "scale_x_y" of darknet's files


@pytest.mark.parametrize(
    ("name", "layout", "sigmoid"),
    [
        ("yolov3", "planes", False),
        ("yolov3-tiny", "planes", False),
        ("yolov4", "last", False),
        ("yolov4-tiny", "rows", False),
        ("yolov5", "boxes", False),
        ("yolov7", "rows", True),
    ],
)
def test_grids_with_anchors(tmp_path, name, layout, sigmoid):
    rng = np.random.default_rng(3)
    anchors = [tuple(map(int, pair.split(","))) for pair in _ANCHORS[name].split()]
    grids, outputs, nodes, boxes, scores = _GRIDS[3 - len(anchors) // 3 :], {}, [], [], []
    for level, (stride, rows, columns) in enumerate(grids):
        x = rng.normal(-1, 1.5, (1, 3, rows, columns, 5 + _CLASSES)).astype(np.float32)
        for box, row, column in itertools.product(range(3), range(rows), range(columns)):
            tx, ty, tw, th, sure, *each = x[0, box, row, column].astype(float)
            (width, height), s = anchors[3 * level + box], _sigmoid
            if name.startswith(("yolov3", "yolov4")):
                reach = _REACH.get(name, (1, 1, 1))[level]
                at = (reach * (s(t) - 0.5) + 0.5 + n for t, n in ((tx, column), (ty, row)))
                at = tuple(at)
                size = width * math.exp(tw), height * math.exp(th)
            else:
                at = 2 * s(tx) - 0.5 + column, 2 * s(ty) - 0.5 + row
                size = width * (2 * s(tw)) ** 2, height * (2 * s(th)) ** 2
            boxes.append((at[0] * stride, at[1] * stride, *size))
            scores.append(s(sure) * s(np.array(each)))
        if layout == "planes":
            x = x.transpose(0, 1, 4, 2, 3).reshape(1, -1, rows, columns)
        elif layout == "last":
            x = x.transpose(0, 2, 3, 1, 4)
        elif layout == "rows":
            x = x.transpose(0, 2, 3, 1, 4).reshape(1, rows, columns, -1)
        outputs[f"o{stride}"] = x
        nodes.append(node("Sigmoid", [f"o{stride}"], [f"s{stride}"]))
    names = [each.output[0] for each in nodes] if sigmoid else list(outputs)
    path = built(tmp_path, outputs, nodes if sigmoid else [], names[::-1], _SIZE)
    possible = "yolov5, yolov7 or yolov7-tiny" if sigmoid else "yolov3"
    with pytest.raises(InputError, match=f"may be of {possible}"):
        prepared(path, CompileOptions(task="detect"))
    _check(path, name, boxes, scores, (0.25, 0.45), name)


def test_nanodet_has_distributions_of_distances(tmp_path):
    rng = np.random.default_rng(4)
    parts, nodes, boxes, scores = {"flat": np.array([1, _CLASSES + 32, -1])}, [], [], []
    grids = [*_GRIDS, (64, 1, 2)]
    for stride, rows, columns in grids:
        each = rng.normal(-1, 2, (1, _CLASSES, rows, columns)).astype(np.float32)
        spread = rng.normal(0, 2, (1, 32, rows, columns)).astype(np.float32)
        parts |= {f"class{stride}": each, f"spread{stride}": spread}
        nodes += [
            node("Sigmoid", [f"class{stride}"], [f"s{stride}"]),
            node("Concat", [f"s{stride}", f"spread{stride}"], [f"l{stride}"], axis=1),
            node("Reshape", [f"l{stride}", "flat"], [f"f{stride}"]),
        ]
        for y, x in itertools.product(range(rows), range(columns)):
            shares = np.exp(spread[0, :, y, x].astype(float).reshape(4, 8))
            left, up, right, down = (shares @ np.arange(8) / shares.sum(1)) * stride
            x0, y0, x1, y1 = (
                x * stride - left,
                y * stride - up,
                x * stride + right,
                y * stride + down,
            )
            boxes.append(((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0))
            scores.append(_sigmoid(each[0, :, y, x]))
    nodes.append(node("Concat", [f"f{s}" for s, *_ in grids], ["all"], axis=2))
    nodes.append(node("Transpose", ["all"], ["output"], perm=[0, 2, 1]))
    path = built(tmp_path, parts, nodes, ["output"], _SIZE)
    _check(path, "nanodet", boxes, scores, (0.35, 0.6), single=False)
    task = prepared(path).task
    assert task is not None and task.mean == (103.53, 116.28, 123.675)


def test_picodet_has_scores_and_distances_of_each_grid(tmp_path):
    rng = np.random.default_rng(8)
    parts, nodes, boxes, scores, names = {}, [], [], [], []
    for stride, rows, columns in [*_GRIDS, (64, 1, 2)]:
        each = rng.normal(-1, 2, (1, rows * columns, _CLASSES)).astype(np.float32)
        spread = rng.normal(0, 2, (1, rows * columns, 32)).astype(np.float32)
        parts |= {f"class{stride}": each, f"spread{stride}": spread}
        nodes.append(node("Sigmoid", [f"class{stride}"], [f"s{stride}"]))
        names += [f"s{stride}", f"spread{stride}"]
        for at, (y, x) in enumerate(itertools.product(range(rows), range(columns))):
            shares = np.exp(spread[0, at].astype(float).reshape(4, 8))
            left, up, right, down = (shares @ np.arange(8) / shares.sum(1)) * stride
            x0, y0 = (x + 0.5) * stride - left, (y + 0.5) * stride - up
            boxes.append((x0 + (left + right) / 2, y0 + (up + down) / 2, left + right, up + down))
            scores.append(_sigmoid(each[0, at]))
    path = built(tmp_path, parts, nodes, names[::-1], _SIZE)
    _check(path, "picodet", boxes, scores, (0.4, 0.5), single=False)


def _queries(classes: int, seed: int):
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(0.2, 0.6, (20, 4)).astype(np.float32)
    logits = rng.normal(-2, 3, (20, classes)).astype(np.float32)
    return boxes, logits


@pytest.mark.parametrize(
    ("name", "classes"), [("detr", 92), ("deformable-detr", 91), ("rt-detr", 80)]
)
def test_boxes_of_queries_are_not_suppressed(tmp_path, name, classes):
    boxes, logits = _queries(classes, 5)
    boxes[:4] = boxes[0]
    outputs = {"logits": logits[None], "pred_boxes": boxes[None]}
    if name == "detr":  # which may give masks, too
        outputs["pred_masks"] = np.zeros((1, 20, 8, 12), np.float32)
    path = detector(tmp_path, outputs, _SIZE)
    if name == "detr":
        shares = np.exp(logits.astype(float))
        scores = (shares / shares.sum(1, keepdims=True))[:, :-1]
    else:
        scores = _sigmoid(logits.astype(float))
    _check(path, name, boxes * [96, 64, 96, 64], scores, (0.5, 2.0), single=False)
    task = prepared(path).task
    assert task is not None and task.labels[17 if classes > 80 else 15] == "cat"


def test_queries_with_classes_of_their_own(tmp_path):
    boxes, logits = _queries(4, 6)
    path = detector(tmp_path, {"pred_logits": logits[None], "pred_boxes": boxes[None]}, _SIZE)
    with pytest.raises(InputError, match="may be of detr, deformable-detr or rt-detr"):
        prepared(path, CompileOptions(task="detect"))
    scores = _sigmoid(logits.astype(float))
    _check(path, "rt-detr", boxes * [96, 64, 96, 64], scores, (0.5, 2.0), "rt-detr", single=False)
    (tmp_path / "config.json").write_text(json.dumps({**_CONFIG, "model_type": "rf_detr"}))
    task = prepared(path).task
    assert task is not None and (task.labels[0], task.mean[0]) == ("ant", 123.675)


def test_queries_and_scores_in_one_output(tmp_path):
    rng = np.random.default_rng(7)
    boxes = rng.uniform(0.2, 0.6, (100, 4)).astype(np.float32)
    logits = rng.normal(-3, 2, (100, 5)).astype(np.float32)
    parts = {"box": boxes[None], "logits": logits[None]}
    nodes = [
        node("Sigmoid", ["logits"], ["scores"]),
        node("Concat", ["box", "scores"], ["output0"], axis=2),
    ]
    path = built(tmp_path, parts, nodes, ["output0"], _SIZE)
    scores = _sigmoid(logits.astype(float))
    _check(path, "rt-detr", boxes * [96, 64, 96, 64], scores, (0.25, 2.0))
    text = detector(tmp_path, {"y": np.zeros((1, 100, 38), np.float32)}, _SIZE)
    assert prepared(text).task is None


def _torchvision_priors(grids, scales, ratios):
    """Center and size of each, after the paper: relative to the picture."""
    for k, ((cells, span), several) in enumerate(zip(grids, ratios, strict=True)):
        own, more = scales[k], math.sqrt(scales[k] * scales[k + 1])
        sizes = [(own, own), (more, more)]
        for ratio in several:
            root = math.sqrt(ratio)
            sizes += [(own * root, own / root), (own / root, own * root)]
        for j, i in itertools.product(range(cells), repeat=2):
            for width, height in sizes:
                yield (i + 0.5) / span, (j + 0.5) / span, min(width, 1), min(height, 1)


@pytest.mark.parametrize("name", ["torchvision-ssd", "ssd300", "torchvision-ssdlite"])
def test_offsets_to_priors(tmp_path, name):
    if name == "torchvision-ssdlite":
        side, ratios = 320, [(2, 3)] * 6
        grids = [(n, n) for n in (20, 10, 5, 3, 2, 1)]
        scales, overlap = [0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0], 0.55
    else:
        side, ratios = 300, [(2,), (2, 3), (2, 3), (2, 3), (2,), (2,)]
        steps = (8, 16, 32, 64, 100, 300)
        grids = [(n, 300 / step) for n, step in zip((38, 19, 10, 5, 3, 1), steps, strict=True)]
        scales, overlap = [0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05], 0.45
        if name == "ssd300":
            scales = [0.1, 0.2, 0.37, 0.54, 0.71, 0.88, 1.05]
    priors = np.array(list(_torchvision_priors(grids, scales, ratios))) * side
    rng = np.random.default_rng(8)
    offsets = rng.normal(0, 1, (len(priors), 4)).astype(np.float32)
    logits = rng.normal(0, 1, (len(priors), 3)).astype(np.float32)
    logits[:, 0] += 5
    logits[rng.integers(0, len(priors), 60), 1] += 9
    outputs = {"bbox_regression": offsets[None], "cls_logits": logits[None]}
    path = detector(tmp_path, outputs, (side, side))
    at = priors[:, :2] + offsets[:, :2] / 10 * priors[:, 2:]
    boxes = np.concatenate([at, np.exp(offsets[:, 2:] / 5) * priors[:, 2:]], 1)
    shares = np.exp(logits.astype(float))
    scores = (shares / shares.sum(1, keepdims=True))[:, 1:]
    if side == 300:
        with pytest.raises(InputError, match="may be of torchvision-ssd or ssd300"):
            prepared(path, CompileOptions(task="detect"))
    _check(path, name, boxes, scores, (0.4, overlap), name, single=False)


def test_corners_and_shares_of_pytorch_ssd(tmp_path):
    rng = np.random.default_rng(9)
    centers = rng.uniform(0.2, 0.8, (3000, 2))
    half = rng.uniform(0.02, 0.2, (3000, 2))
    logits = rng.normal(0, 1, (3000, 3)).astype(np.float32)
    logits[:, 0] += 5
    logits[rng.integers(0, 3000, 60), 1] += 9
    corners = np.concatenate([centers - half, centers + half], 1).astype(np.float32)
    parts = {"logs": np.log(corners)[None], "logits": logits[None]}
    nodes = [
        node("Exp", ["logs"], ["boxes"]),
        node("Softmax", ["logits"], ["scores"], axis=2),
    ]
    path = built(tmp_path, parts, nodes, ["scores", "boxes"], (300, 300))
    shares = np.exp(logits.astype(float))
    scores = (shares / shares.sum(1, keepdims=True))[:, 1:]
    boxes = np.concatenate([centers, 2 * half], 1) * 300
    _check(path, "pytorch-ssd", boxes, scores, (0.4, 0.45), single=False)
    task = prepared(path).task
    assert task is not None and (task.mean, task.scale) == ((127.0,), (128.0,))


_CONFIG = {"model_type": "detr", "id2label": {"0": "ant", "1": "bee", "2": "cow", "3": "dog"}}
_PIXELS = {"do_normalize": True, "image_mean": [0.5, 0.4, 0.2], "image_std": [0.1, 0.2, 0.5]}


def test_files_beside_the_model_decide(tmp_path):
    boxes, logits = _queries(5, 10)
    path = detector(tmp_path, {"logits": logits[None], "pred_boxes": boxes[None]}, _SIZE)
    (tmp_path / "config.json").write_text(json.dumps(_CONFIG))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(_PIXELS))
    shares = np.exp(logits.astype(float))
    scores = (shares / shares.sum(1, keepdims=True))[:, :-1]
    _check(path, "by config.json", boxes * [96, 64, 96, 64], scores, (0.5, 2.0), single=False)
    task = prepared(path).task
    assert task is not None and task.labels == ("ant", "bee", "cow", "dog")
    assert (task.mean, task.scale) == ((127.5, 102, 51), (25.5, 51, 127.5))
    # Four classes are not nine: another model's files say nothing.
    other = detector(tmp_path, {"y": np.zeros((1, 13, len(_cells())), np.float32)}, _SIZE)
    task = prepared(other).task
    assert task is not None and task.labels == task.mean == ()


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": 1}', "[" * 9999, '{"id2label": []}'])
def test_files_that_cannot_be_read_decide_nothing(tmp_path, text):
    path = detector(tmp_path, {"y": np.zeros((1, 8, len(_cells())), np.float32)}, _SIZE)
    for name in ("config", "preprocessor_config"):
        (tmp_path / f"{name}.json").write_text(text)
    task = prepared(path).task
    assert task is not None and task.labels == ()
