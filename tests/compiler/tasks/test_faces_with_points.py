"""Detectors of faces and persons whose boxes are followed by points."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, built, detector, scattered
from tests.support.onnx_models import node

_SIZE = (64, 96)
_GRIDS = ((8, 12), (4, 6), (2, 3))
_CELLS = sum(rows * columns for rows, columns in _GRIDS)


def _random(seed, *shape):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def _anchored(folder, widths, scores):
    """The boxes of three grids, with parts of these widths behind them, of which `scores` are from
    0 to 1; and the joined fields."""
    sizes, levels, parts, nodes, joined = (2, 2, *widths), [], {}, [], []
    boxes = scattered(3 * _CELLS, _SIZE, 7)
    ends = np.cumsum([3 * rows * columns for rows, columns in _GRIDS])[:-1]
    for number, own in enumerate(np.split(boxes, ends)):
        fields = [own[:, :2], own[:, 2:]]
        for at, width in enumerate(widths):
            some = np.random.default_rng(10 * number + at).random((len(own), width))
            fields.append(some**0.3 if at in scores else 90 * some)
        names = [f"p{number}.{at}" for at in range(len(sizes))]
        rows = [np.float32(each)[None] for each in fields]
        parts.update(zip(names, rows, strict=True))
        nodes.append(node("Concat", names, [f"g{number}"], axis=2))
        levels.append(f"g{number}")
        joined.append(np.concatenate(rows, 2)[0])
    nodes.append(node("Concat", levels, ["y"], axis=1))
    return built(folder, parts, nodes, ["y"], _SIZE), boxes, np.concatenate(joined)


def test_points_of_yolov7(tmp_path):
    """Object and class scores, and then x, y and score of each point."""
    path, boxes, fields = _anchored(tmp_path, (2, 51), {0})
    made = prepared(path)
    assert made.task is not None and made.task.kind == "pose"
    assert made.task.labels == ("person",)
    found = rows_of(made, 7 + 51)
    expected = best_boxes(boxes, fields[:, 4:5] * fields[:, 5:6], 0.25, 0.7)[:100]
    assert len(expected) > 3
    same([(label, score, rest[:4]) for label, score, rest in found], expected)
    at = np.flatnonzero(fields[:, 4] * fields[:, 5] == np.float32(expected[0][1]))[0]
    assert found[0][2][4:] == pytest.approx(fields[at, 6:], abs=1e-2)


@pytest.mark.parametrize(("numbers", "label"), [(15, "face"), (51, "person"), (8, "")])
def test_points_of_yolov8_before_decoding(tmp_path, numbers, label):
    """Ultralytics' formulas for each cell: (2 x + column) · stride; four points have no scores."""
    rng, each = np.random.default_rng(numbers), 2 if numbers % 3 else 3
    parts, nodes, boxes, scores, points = {}, [], [], [], []
    for stride, (rows, columns) in zip((8, 16, 32), _GRIDS, strict=True):
        own = [rng.normal(0, 2, (1, n, rows, columns)).astype("f4") for n in (64, 1, numbers)]
        names = [f"{kind}{stride}" for kind in ("spread", "logit", "points")]
        parts.update(zip(names, own, strict=True))
        nodes.append(node("Concat", names, [f"all{stride}"], axis=1))
        for y, x in np.ndindex(rows, columns):
            spread, logit, at = (part[0, :, y, x].astype(float) for part in own)
            shares = np.exp(spread.reshape(4, 16))
            left, up, right, down = stride * (shares @ np.arange(16) / shares.sum(1))
            middle = stride * (x + 0.5) + (right - left) / 2, stride * (y + 0.5) + (down - up) / 2
            boxes.append((*middle, left + right, up + down))
            scores.append(1 / (1 + np.exp(-logit)))
            at = at.reshape(-1, each)
            sure = 1 / (1 + np.exp(-at[:, 2:])) if each == 3 else np.ones((len(at), 1))
            places = (2 * at[:, :2] + (x, y)) * stride
            points.append(np.concatenate([places, sure], 1).reshape(-1))
    made = prepared(built(tmp_path, parts, nodes, ["all8", "all16", "all32"], _SIZE))
    assert made.task is not None and made.task.kind == "pose"
    assert made.task.labels == ((label,) if label else ())
    found = rows_of(made, 7 + len(points[0]))
    scored = np.array(scores, np.float32)
    expected = best_boxes(np.array(boxes), scored, 0.25, 0.7)[:100]
    assert len(expected) > 9
    same([(name, score, rest[:4]) for name, score, rest in found], expected)
    at = int(np.abs(scored[:, 0] - expected[0][1]).argmin())
    assert found[0][2][4:] == pytest.approx(points[at], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("points", "labels"), [(5, ("face",)), (4, ())])
def test_points_of_yolov5_faces_are_before_the_class(tmp_path, points, labels):
    """And those of license plates, which have four."""
    path, boxes, fields = _anchored(tmp_path, (1, *[2] * points, 1), {0, points + 1})
    made = prepared(path)
    assert made.task is not None and (made.task.kind, made.task.labels) == ("pose", labels)
    found = rows_of(made, 7 + 3 * points)
    expected = best_boxes(boxes, fields[:, 4:5] * fields[:, 5 + 2 * points :], 0.25, 0.7)[:100]
    assert len(expected) > 3
    same([(label, score, rest[:4]) for label, score, rest in found], expected)


@pytest.mark.parametrize("fields", [16, 21, 57, 5 + 180 + 15])
def test_fields_that_may_be_points_or_angles_are_no_classes_by_themselves(tmp_path, fields):
    output = np.zeros((1, 3 * _CELLS, fields), np.float32)
    path = detector(tmp_path, {"y": output}, _SIZE)
    made = prepared(path)
    assert made.task is None and "may" in made.source and "--head yolov5" in made.source
    (tmp_path / "m.txt").write_text("\n".join(f"c{i}" for i in range(fields - 5)))
    named = prepared(path)
    assert named.task is not None and len(named.task.labels) == fields - 5


def _retina_priors():
    for stride, sides in ((8, (16, 32)), (16, (64, 128)), (32, (256, 512))):
        for row in range(_SIZE[0] // stride):
            for column in range(_SIZE[1] // stride):
                for side in sides:
                    yield (column + 0.5) * stride, (row + 0.5) * stride, side, side


@pytest.mark.parametrize("softmax", [True, False])
def test_offsets_from_the_priors_of_retinaface(tmp_path, softmax):
    priors = np.array(list(_retina_priors()), np.float32)
    count = len(priors)
    offsets, logits = 0.3 * _random(1, 1, count, 4), _random(2, 1, count, 2)
    parts = {"b": offsets, "s": logits, "p": _random(3, 1, count, 10)}
    nodes = [node("Softmax", ["s"], ["share"], axis=2)]
    made = prepared(built(tmp_path, parts, nodes, ["b", "share" if softmax else "s", "p"], _SIZE))
    assert made.task is not None and made.task.labels == ("face",)
    assert (made.task.channels, made.task.mean) == ("bgr", (104, 117, 123))
    shares = np.exp(logits[0]) / np.exp(logits[0]).sum(1, keepdims=True)
    centers = priors[:, :2] + 0.1 * offsets[0, :, :2] * priors[:, 2:]
    boxes = np.concatenate([centers, priors[:, 2:] * np.exp(0.2 * offsets[0, :, 2:])], 1)
    expected = best_boxes(boxes, shares[:, 1:], 0.6, 0.4)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])


def test_maps_of_centerface(tmp_path):
    heat, sizes, shifts = (
        _random(1, 1, 1, 16, 24),
        _random(2, 1, 2, 16, 24),
        _random(3, 1, 2, 16, 24),
    )
    parts = {"h": heat, "s": sizes, "o": shifts, "p": _random(4, 1, 10, 16, 24)}
    made = prepared(built(tmp_path, parts, [node("Sigmoid", ["h"], ["y"])], list("ysop"), _SIZE))
    assert made.task is not None and (made.task.labels, made.task.scale) == (("face",), (1.0,))
    row, column = np.mgrid[:16, :24]
    boxes = [
        4 * (column + shifts[0, 1] + 0.5), 4 * (row + shifts[0, 0] + 0.5),
        4 * np.exp(sizes[0, 1]), 4 * np.exp(sizes[0, 0]),
    ]  # fmt: skip
    boxes = np.stack(boxes, -1).reshape(-1, 4)
    expected = best_boxes(boxes, 1 / (1 + np.exp(-heat.reshape(-1, 1))), 0.5, 0.3)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])
    assert prepared(detector(tmp_path, parts, _SIZE)).task is None  # no scores from 0 to 1


@pytest.mark.parametrize(
    ("fields", "said"), [(16, "11 classes, or one and 5"), (15, "10 classes, or two and 4")]
)
def test_asking_for_boxes_that_are_in_doubt_says_why(tmp_path, fields, said):
    from edgekit.host.compiler.options import CompileOptions

    path = detector(tmp_path, {"y": np.zeros((1, 3 * _CELLS, fields), np.float32)}, _SIZE)
    with pytest.raises(InputError, match=f"--task detect: .* {said} points"):
        prepared(path, CompileOptions(task="detect"))
    assert prepared(path, CompileOptions(head="yolov5")).task is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [("face_detection_yunet_2022mar", 0.9), ("license_plate_detection_lpd_yunet_2023mar", 0.8)],
)
def test_yunet_of_before_2023_finds_faces_or_plates(tmp_path, name, least):
    """Grids of 96 x 128 pixels end where a whole cell of 64 pixels does."""
    sides = {8: (10, 16, 24), 16: (32, 48), 32: (64, 96), 64: (128, 192, 256)}
    priors = np.array([
        ((column + 0.5) * stride, (row + 0.5) * stride, side)
        for stride in sides for row in range(96 // stride) for column in range(128 // stride)
        for side in sides[stride]
    ])  # fmt: skip
    loc, iou = _random(1, len(priors), 14), 1 + _random(2, len(priors), 1)
    sure = np.random.default_rng(3).random((len(priors), 1)) ** 0.2
    conf = np.concatenate([1 - sure, sure], 1).astype(np.float32)
    centers, extents = priors[:, :2], priors[:, 2:]
    if least == 0.9:
        boxes = np.concatenate([centers + 0.1 * loc[:, :2] * extents,
                                np.exp(0.2 * loc[:, 2:4]) * extents], 1)  # fmt: skip
    else:
        places = [centers + 0.1 * loc[:, n : n + 2] * extents for n in (4, 6, 10, 12)]
        low, high = np.min(places, 0), np.max(places, 0)
        boxes = np.concatenate([(low + high) / 2, high - low], 1)
    expected = best_boxes(boxes, np.sqrt(conf[:, 1:] * np.clip(iou, 0, 1)), least, 0.3)
    path = detector(tmp_path, {"loc": loc, "conf": conf, "iou": iou}, (96, 128))
    said = "may be of face-detection-yunet or license-plate-detection"
    assert said in prepared(path).source
    made = prepared(path.rename(tmp_path / f"{name}.onnx"))
    assert made.task is not None and made.task.labels == (("face",) if least == 0.9 else ("plate",))
    assert len(expected) > 3
    same(rows_of(made), expected[:100])
