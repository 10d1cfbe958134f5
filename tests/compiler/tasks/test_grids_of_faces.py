"""Heads of faces, palms and poses against decoders in NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, detector

_SIZE = (64, 96)
_STRIDES = (8, 16, 32)


def _cells(stride):
    return itertools.product(range(_SIZE[0] // stride), range(_SIZE[1] // stride))


def _some(rng, count, last):
    return rng.normal(0, 1, (1, count, last)).astype(np.float32)


@pytest.mark.parametrize("with_points", [True, False])
def test_yunet_shifts_and_scales_cells(tmp_path, with_points):
    rng = np.random.default_rng(0)
    outputs, boxes, scores = {}, [], []
    for stride in _STRIDES:
        cells = list(_cells(stride))
        sure, each = (rng.uniform(0.5, 1.1, (1, len(cells), 1)).astype(np.float32) for _ in "ab")
        box = _some(rng, len(cells), 4)
        outputs |= {f"cls_{stride}": each, f"obj_{stride}": sure, f"bbox_{stride}": box}
        if with_points:
            outputs[f"kps_{stride}"] = _some(rng, len(cells), 10)
        for i, (row, column) in enumerate(cells):
            x, y, w, h = box[0, i].astype(float)
            boxes.append(((column + x) * stride, (row + y) * stride, math.exp(w) * stride,
                          math.exp(h) * stride))  # fmt: skip
            scores.append([math.sqrt(min(sure[0, i, 0], 1) * min(each[0, i, 0], 1))])
    made = prepared(detector(tmp_path, outputs, _SIZE))
    assert made.task is not None and made.task.labels == ("face",)
    assert (made.task.channels, made.task.scale) == ("bgr", (1.0,))
    expected = best_boxes(np.array(boxes), np.array(scores), 0.9, 0.3)
    assert len(expected) > 3
    same(rows_of(made), expected)


@pytest.mark.parametrize("batch", [(), (1,)])
def test_scrfd_measures_distances(tmp_path, batch):
    rng = np.random.default_rng(1)
    outputs, boxes, scores = {}, [], []
    for stride in _STRIDES:
        cells = [cell for cell in _cells(stride) for _ in range(2)]
        score = rng.uniform(0, 1, (len(cells), 1)).astype(np.float32) ** 3
        far = rng.uniform(0.2, 2, (len(cells), 4)).astype(np.float32)
        outputs |= {f"s{stride}": score.reshape(*batch, -1, 1)}
        outputs |= {f"b{stride}": far.reshape(*batch, -1, 4)}
        for i, (row, column) in enumerate(cells):
            left, up, right, down = far[i].astype(float) * stride
            x, y = column * stride, row * stride
            boxes.append((x + (right - left) / 2, y + (down - up) / 2, left + right, up + down))
            scores.append(score[i])
    made = prepared(detector(tmp_path, outputs, _SIZE))
    assert made.task is not None and (made.task.mean, made.task.scale) == ((127.5,), (128.0,))
    expected = best_boxes(np.array(boxes), np.array(scores), 0.5, 0.4)
    assert len(expected) > 3
    same(rows_of(made), expected)


@pytest.mark.parametrize(
    ("label", "side", "width", "grids"),
    [
        ("palm", 192, 18, ((24, 2), (12, 6))),
        ("palm", 256, 18, ((32, 2), (16, 2), (8, 6))),
        ("person", 224, 12, ((28, 2), (14, 2), (7, 6))),
    ],
)
def test_boxes_around_the_centers_of_cells(tmp_path, label, side, width, grids):
    rng = np.random.default_rng(2)
    centers = [
        ((column + 0.5) * side / cells, (row + 0.5) * side / cells)
        for cells, each in grids
        for row, column in itertools.product(range(cells), repeat=2)
        for _ in range(each)
    ]
    values = rng.normal(20, 8, (1, len(centers), width)).astype(np.float32)
    logits = rng.normal(-6, 2.5, (1, len(centers), 1)).astype(np.float32)
    made = prepared(detector(tmp_path, {"boxes": values, "scores": logits}, (side, side)))
    assert made.task is not None and made.task.labels == (label,)
    boxes = values[0, :, :4].astype(float)
    if label == "person":  # the second point lies on a circle around the first
        middle, edge = values[0, :, 4:6].astype(float), values[0, :, 6:8].astype(float)
        boxes = np.concatenate([middle, 2 * np.hypot(*(edge - middle).T)[:, None] * [1, 1]], 1)
    boxes[:, :2] += centers
    expected = best_boxes(boxes, 1 / (1 + np.exp(-logits[0].astype(float))), 0.5, 0.3)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])


def test_ultraface_is_known_without_names(tmp_path):
    rng = np.random.default_rng(3)
    cells = [(30, 40, 3), (15, 20, 2), (8, 10, 2), (4, 5, 3)]
    count = sum(rows * columns * each for rows, columns, each in cells)
    outputs = {"Identity": _some(rng, count, 4), "Identity_1": _some(rng, count, 2)}
    made = prepared(detector(tmp_path, outputs, (240, 320)))
    assert made.task is not None and "UltraFace" in made.source


def test_movenet_finds_the_points_of_one_person(tmp_path):
    points = np.random.default_rng(4).uniform(0.1, 0.9, (17, 3)).astype(np.float32)
    path = detector(tmp_path, {"y": points[None, None]}, (192, 192))
    made = prepared(path)
    assert made.task is not None and (made.task.kind, made.task.labels) == ("pose", ("person",))
    assert (made.task.fit, made.task.fill, made.task.scale) == ("letterbox", 0, (1.0,))
    (row,) = _poses(made)
    at = points[:, [1, 0]] * 192
    wanted = [0, 0, points[:, 2].mean(), *at.min(0), *at.max(0)]
    wanted += np.concatenate([at, points[:, 2:]], 1).ravel().tolist()
    np.testing.assert_allclose(row, wanted, rtol=1e-5)


def test_movenet_finds_several_persons(tmp_path):
    rng = np.random.default_rng(5)
    points = rng.uniform(0.1, 0.9, (6, 17, 3)).astype(np.float32)
    ends = rng.uniform(0, 1, (6, 5)).astype(np.float32)  # top, left, bottom, right, score
    output = np.concatenate([points.reshape(6, -1), ends], 1)[None]
    made = prepared(detector(tmp_path, {"y": output}, _SIZE))
    unit = np.array([96, 64], np.float32)
    for row, point, (top, left, bottom, right, score) in zip(
        _poses(made), points, ends, strict=True
    ):
        wanted = [0, 0, score, left * 96, top * 64, right * 96, bottom * 64]
        wanted += np.concatenate([point[:, [1, 0]] * unit, point[:, 2:]], 1).ravel().tolist()
        np.testing.assert_allclose(row, wanted, rtol=1e-5)


def _poses(made):
    shape = made.graph.tensors[made.graph.inputs[0]].shape
    x = {made.graph.inputs[0]: np.zeros(shape, np.float32)}
    return evaluate(made.graph, x).outputs["poses"].reshape(-1, 7 + 17 * 3)


@pytest.mark.parametrize(
    ("label", "side", "shapes", "count", "fields", "logit"),
    [
        ("hand", 224, [(1, 63), (1, 1), (1, 1), (1, 63)], 21, 3, 2.5),
        ("face", 192, [(1, 1, 1, 1404), (1, 1, 1, 1)], 468, 3, 0.1),
        ("face", 192, [(1, 1, 1, 1404), (1, 1, 1, 1)], 468, 3, -0.1),
        ("person", 256, [(1, 195), (1, 1), (1, 256, 256, 1), (1, 117)], 33, 5, 1.5),
    ],
)
def test_landmarks_are_those_of_what_is_there(tmp_path, label, side, shapes, count, fields, logit):
    rng = np.random.default_rng(5)
    outputs = {
        f"Identity_{i}": rng.uniform(-2, side, shape).astype(np.float32)
        for i, shape in enumerate(shapes)
    }
    outputs["Identity_1"][:] = logit
    made = prepared(detector(tmp_path, outputs, (side, side)))
    assert made.task is not None and made.task.kind == "pose" and made.task.labels == (label,)
    assert "which fills the picture" in made.source
    feeds = {made.graph.inputs[0]: np.zeros((1, 3, side, side), np.float32)}
    row = evaluate(made.graph, feeds).outputs[made.task.output].reshape(-1)
    score = 1 / (1 + math.exp(-logit))
    given = outputs["Identity_0"].reshape(-1, fields)[:count].astype(float)
    seen = 1 / (1 + np.exp(-given[:, 3])) if fields == 5 else np.full(count, score)
    corners = [*given[:, :2].min(0), *given[:, :2].max(0)]
    expected = [0, 0 if logit > 0 else -1, score, *corners]
    points = np.concatenate([given[:, :2], seen[:, None]], 1)
    np.testing.assert_allclose(row, [*expected, *points.reshape(-1)], atol=1e-4)


@pytest.mark.parametrize(
    ("side", "name", "points", "width", "skipped"),
    [(192, "fc1", 106, 2, 0), (192, "fc1", 68, 3, 1035), (112, "landms", 98, 2, 0)],
)
def test_points_of_a_face_need_no_score(tmp_path, side, name, points, width, skipped):
    """InsightFace's are from -1 to 1, PFLD's, with the maps that they are from, from 0 to 1."""
    rng = np.random.default_rng(8)
    given = rng.uniform(-1, 1, (skipped + points, width)).astype(np.float32)
    outputs = {name: given.reshape(1, -1)}
    if side == 112:
        outputs = {"maps": np.zeros((1, 64, 28, 28), np.float32), **outputs}
    made = prepared(detector(tmp_path, outputs, (side, side)))
    assert made.task is not None and made.task.kind == "pose" and made.task.labels == ("face",)
    feeds = {made.graph.inputs[0]: np.zeros((1, 3, side, side), np.float32)}
    row = evaluate(made.graph, feeds).outputs[made.task.output].reshape(-1)
    at = given[skipped:, :2].astype(float)
    at = at * 112 if side == 112 else (at + 1) * 96
    np.testing.assert_allclose(row[:7], [0, 0, 1, *at.min(0), *at.max(0)], atol=1e-3)
    np.testing.assert_allclose(row[7:].reshape(-1, 3)[:, :2], at, atol=1e-3)
    other = prepared(detector(tmp_path, {"y": np.zeros((1, 136), np.float32)}, (112, 112)))
    assert other.task is None and "may give the points of a face" in other.source


@pytest.mark.parametrize("first", ["contour", "iris"])
def test_points_of_an_eye_need_no_score(tmp_path, first):
    rng = np.random.default_rng(6)
    outputs = {
        "contour": rng.uniform(0, 64, (1, 213)).astype(np.float32),
        "iris": rng.uniform(0, 64, (1, 15)).astype(np.float32),
    }
    last = ({*outputs} - {first}).pop()
    given = {name: outputs[name] for name in (first, last)}
    made = prepared(detector(tmp_path, given, (64, 64)))
    assert made.task is not None and (made.task.kind, made.task.labels) == ("pose", ("eye",))
    feeds = {made.graph.inputs[0]: np.zeros((1, 3, 64, 64), np.float32)}
    row = evaluate(made.graph, feeds).outputs[made.task.output].reshape(-1)
    points = np.concatenate([outputs[name].reshape(-1, 3) for name in ("contour", "iris")])
    points[:, 2] = 1
    corners = [*points[:, :2].min(0), *points[:, :2].max(0)]
    np.testing.assert_allclose(row, [0, 0, 1, *corners, *points.reshape(-1)], atol=1e-4)
