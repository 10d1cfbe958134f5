"""Boxes that a model selects, or that it has not decoded yet, in several outputs."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, built, detector
from tests.support.onnx_models import model, node, save, value

_SIZE = (64, 96)
_GRIDS = [(8, 8, 12), (16, 4, 6), (32, 2, 3)]  # stride, rows, columns


def _floats(parts):
    return {name: np.asarray(value, np.float32) for name, value in parts.items()}


@pytest.mark.parametrize("suffix", ["", ":0"])
def test_detections_of_tensorflow_count_classes_from_one(tmp_path, suffix):
    names = ("detection_boxes", "detection_classes", "detection_scores", "num_detections")
    boxes = [[[0.25, 0.5, 0.75, 1], [0, 0, 0.5, 0.5], [0, 0, 1, 1]]]
    values = (boxes, [[2, 1, 1]], [[0.9, 0.5, 0]], [2])
    outputs = {f"{n}{suffix}": v for n, v in zip(names, values, strict=True)}
    path = detector(tmp_path, _floats(outputs), _SIZE)
    made = prepared(path)
    assert made.task is not None and made.task.labels == () and made.task.scale == (1,)
    found = rows_of(made)
    same(
        [each for each in found if each[1]], [(2, 0.9, (48, 16, 96, 48)), (1, 0.5, (0, 0, 48, 32))]
    )
    for lines in ("cat\ndog\n", "???\ncat\ndog\n"):
        (tmp_path / "labels.txt").write_text(lines)
        task = prepared(path).task
        assert task is not None and task.labels == ("", "cat", "dog")


def selecting(folder, columns, outputs, more=()):
    """A model that selects three of four boxes, of which the second overlaps the first. `columns`
    are nodes that make outputs of `kept`, the numbers of the boxes."""
    corners = [[0, 0, 40, 40], [1, 0, 40, 40], [50, 20, 90, 60], [2, 2, 8, 8]]
    scores, labels = [0.9, 0.8, 0.6, 0.5], [7, 7, 2, 0]
    constants = {
        "corners": np.array([corners], np.float32), "scores_": np.array([[scores]], np.float32),
        "most": np.array([4]), "overlap": np.float32([0.5]), "least": np.float32([0.1]),
        "two": np.array([2]), "flat": np.array([-1]), "c": np.array(corners, np.float32),
        "s": np.array(scores, np.float32), "l": np.array(labels), "zero": np.zeros(1, np.float32),
        "fields": np.array([[0, *c, n, s] for c, n, s in zip(corners, labels, scores, strict=True)],
                           np.float32),
        **dict(more),
    }  # fmt: skip
    nodes = [
        node("ReduceMean", ["images"], ["mean"], keepdims=0),
        node("Mul", ["mean", "zero"], ["none"]),
        node("Add", ["scores_", "none"], ["own"]),
        node("NonMaxSuppression", ["corners", "own", "most", "overlap", "least"], ["picked"]),
        node("Gather", ["picked", "two"], ["column"], axis=1),
        node("Reshape", ["column", "flat"], ["kept"]),
        *columns,
    ]
    made = model(nodes, [value("images", [1, 3, *_SIZE])], outputs, constants, opset=13)
    for each in made.graph.output:
        each.type.tensor_type.elem_type = 7 if each.name == "labels" else 1
    return save(made, folder)


_LEFT = [(7, 0.9, (0, 0, 40, 40)), (2, 0.6, (50, 20, 90, 60)), (0, 0.5, (2, 2, 8, 8))]


def test_rows_behind_those_that_were_found_are_empty(tmp_path):
    """YOLOv7 with suppression in the file: images, corners, classes and scores."""
    path = selecting(tmp_path, [node("Gather", ["fields", "kept"], ["y"], axis=0)], ["y"])
    made = prepared(path)
    assert made.task is not None and made.task.fit == "letterbox"
    same(rows_of(made), _LEFT)


@pytest.mark.parametrize("score_first", [False, True])
def test_the_class_of_a_box_is_what_was_an_integer(tmp_path, score_first):
    """YOLO-NAS' rows end in score and class, YOLOv7's in class and score."""
    more = {"column_of": np.array([-1, 1]), "none_": np.zeros((4, 1), np.float32)}
    last = ["score", "label"] if score_first else ["label", "score"]
    columns = [
        *(node("Gather", [x, "kept"], [f"{x}.k"], axis=0) for x in ("none_", "c", "l", "s")),
        node("Cast", ["l.k"], ["l.f"], to=1),
        node("Reshape", ["l.f", "column_of"], ["label"]),
        node("Reshape", ["s.k", "column_of"], ["score"]),
        node("Concat", ["none_.k", "c.k", *last], ["y"], axis=1),
    ]
    made = prepared(selecting(tmp_path, columns, ["y"], more.items()))
    assert made.task is not None and ("YOLO-NAS" in made.source) is score_first
    same(rows_of(made), _LEFT)


def test_rows_of_yolov9_for_browsers(tmp_path):
    rows = np.float32([[1, 2, 30, 40, 0.9, 3], [5, 6, 7, 8, 0.4, 0]])
    made = prepared(detector(tmp_path, {"outputs": rows}, _SIZE))
    assert made.task is not None and (made.task.fit, made.task.scale) == ("stretch", (255.0,))
    same(rows_of(made), [(3, 0.9, (1, 2, 30, 40)), (0, 0.4, (5, 6, 7, 8))])
    assert prepared(detector(tmp_path, {"y": rows}, _SIZE)).task is None


def test_detections_of_torchvision_get_no_labels(tmp_path):
    """Its own classes count from 1, those of others from 0."""
    columns = [
        node("Gather", [source, "kept"], [name], axis=0)
        for source, name in (("c", "boxes"), ("l", "labels"), ("s", "scores"))
    ]
    path = selecting(tmp_path, columns, ["boxes", "labels", "scores"])
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ()
    same(rows_of(made), _LEFT)


@pytest.mark.parametrize(("count", "labels"), [(91, 91), (90, 0)])
def test_as_many_classes_of_torchvision_as_of_coco_have_its_labels(tmp_path, count, labels):
    parts = _floats({"c": np.ones((7, 4)), "s": np.ones((7, count))})
    nodes = [
        node("Softmax", ["s"], ["shares"], axis=1),
        node("ReduceMax", ["shares"], ["scores"], axes=[1], keepdims=0),
        node("ArgMax", ["shares"], ["labels"], axis=1, keepdims=0),
        node("Identity", ["c"], ["boxes"]),
    ]
    path = built(tmp_path, parts, nodes, ["boxes", "labels", "scores"], _SIZE)
    task = prepared(path).task
    assert task is not None and len(task.labels) == labels and task.labels[1:2] != ("",)


def test_boxes_of_custom_vision_are_relative(tmp_path):
    parts = _floats({"b": [[0.25, 0.5, 0.75, 1], [0, 0, 0.1, 0.1]], "k": [1, 0], "s": [0.9, 0.1]})
    names = ("detected_boxes", "detected_classes", "detected_scores")
    nodes = [node("Identity", ["b"], [names[0]]), node("Cast", ["k"], [names[1]], to=7),
             node("Identity", ["s"], [names[2]])]  # fmt: skip
    path = built(tmp_path, parts, nodes, [*names], _SIZE)
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("cat", "dog")
    assert (made.task.fit, made.task.channels, made.task.scale) == ("stretch", "bgr", (1.0,))
    wide, high = _SIZE[1], _SIZE[0]
    assert rows_of(made)[0] == (1, pytest.approx(0.9), (wide / 4, high / 2, wide * 0.75, high))


def test_torchvision_takes_pictures_without_a_batch(tmp_path):
    """As torch.onnx.export(model, [picture]) has them, with numbers as names of the outputs."""
    columns = [
        node("Gather", [source, "kept"], [name], axis=0)
        for source, name in (("c", "2625"), ("s", "2594"), ("l", "labels"))
    ]
    path = selecting(tmp_path, columns, ["2625", "2594", "labels"])
    made = onnx.load(path)
    made.graph.output[2].name = made.graph.node[-1].output[0] = "2595"
    del made.graph.input[0].type.tensor_type.shape.dim[0]
    onnx.save(made, path)
    found = prepared(path)
    assert found.task is not None and found.source == "because outputs are those of torchvision's"
    assert found.graph.tensors[found.task.input].shape == (1, 3, *_SIZE)
    same(rows_of(found), _LEFT)


@pytest.mark.parametrize(
    ("names", "count"), [(("boxes", "confs"), 40), (("a", "b"), 3 * (96 + 24 + 6))]
)
def test_corners_and_scores_of_yolov4(tmp_path, names, count):
    """By their names, or by as many boxes as three in each cell are."""
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 0.6, (count, 2))
    corners = np.concatenate([low, low + rng.uniform(0.1, 0.4, (count, 2))], 1)
    scores = rng.random((count, 2)).astype(np.float32)
    outputs = dict(zip(names, (corners[None, :, None], scores[None]), strict=True))
    made = prepared(detector(tmp_path, _floats(outputs), _SIZE))
    wide = corners * [96, 64, 96, 64]
    boxes = np.concatenate([(wide[:, :2] + wide[:, 2:]) / 2, wide[:, 2:] - wide[:, :2]], 1)
    same(rows_of(made), best_boxes(boxes, scores, 0.4, 0.6)[:100])


@pytest.mark.parametrize("form", ["apart", "sums", "joined"])
def test_distributions_of_distances_and_scores_of_each_grid(tmp_path, form):
    """YOLOv8 before decoding, with logits, or with scores and their sums."""
    rng, classes = np.random.default_rng(4), 3
    parts, nodes, names, boxes, scores = {}, [], [], [], []
    for stride, rows, columns in _GRIDS:
        spread = rng.normal(0, 2, (1, 64, rows, columns)).astype(np.float32)
        each = rng.normal(-1, 2, (1, classes, rows, columns)).astype(np.float32)
        wide, logit, share = f"spread{stride}", f"logit{stride}", f"share{stride}"
        parts |= {wide: spread, logit: each}
        nodes.append(node("Sigmoid", [logit], [share]))
        nodes.append(node("ReduceMax", [share], [f"sum{stride}"], axes=[1]))
        nodes.append(node("Concat", [wide, logit], [f"all{stride}"], axis=1))
        names += {
            "apart": [wide, logit], "sums": [wide, share, f"sum{stride}"],
            "joined": [f"all{stride}"],
        }[form]  # fmt: skip
        for y in range(rows):
            for x in range(columns):
                shares = np.exp(spread[0, :, y, x].astype(float).reshape(4, 16))
                left, up, right, down = stride * (shares @ np.arange(16) / shares.sum(1))
                at_x, at_y = stride * (x + 0.5), stride * (y + 0.5)
                middle = at_x + (right - left) / 2, at_y + (down - up) / 2
                boxes.append((*middle, left + right, up + down))
                scores.append(1 / (1 + np.exp(-each[0, :, y, x].astype(float))))
    made = prepared(built(tmp_path, parts, nodes, names, _SIZE), CompileOptions(task="detect"))
    assert made.task is not None and "YOLOv8's before decoding" in made.source
    expected = best_boxes(np.array(boxes), np.array(scores, np.float32), 0.25, 0.7)
    assert len(expected) > 9
    same(rows_of(made), expected[:100])


def _mmdeploy(folder):
    """`dets` and `labels`, with the row of zeros and the sort that MMDeploy adds."""
    columns = [
        node("Gather", ["s", "kept"], ["found"], axis=0),
        node("Gather", ["c", "kept"], ["at"], axis=0),
        node("Gather", ["l", "kept"], ["named"], axis=0),
        node("Unsqueeze", ["found", "one"], ["share"]),
        node("Concat", ["at", "share"], ["whole"], axis=1),
        node("Concat", ["whole", "nothing"], ["more"], axis=0),
        node("Concat", ["named", "flat"], ["names"], axis=0),
        node("Concat", ["found", "zero"], ["keys"], axis=0),
        node("Shape", ["keys"], ["length"]),
        node("TopK", ["keys", "length"], ["sorted", "order"], axis=0),
        node("Gather", ["more", "order"], ["best"], axis=0),
        node("Gather", ["names", "order"], ["numbers"], axis=0),
        node("Unsqueeze", ["best", "start"], ["dets"]),
        node("Unsqueeze", ["numbers", "start"], ["labels"]),
    ]
    more = {
        "one": np.array([1]), "start": np.array([0]), "nothing": np.zeros((1, 5), np.float32),
    }  # fmt: skip
    return selecting(folder, columns, ["dets", "labels"], more)


def test_detections_of_mmdeploy_need_its_configuration(tmp_path):
    path = _mmdeploy(tmp_path)
    with pytest.raises(InputError, match=r"pipeline\.json, which MMDeploy exports: put it next"):
        prepared(path, CompileOptions(task="detect"))
    named = prepared(path, CompileOptions(head="mmdeploy")).task
    assert named is not None and (named.mean, named.scale, named.channels) == ((0,), (1,), "bgr")
    steps = [
        {"type": "Resize", "keep_ratio": True, "size": [640, 640]},
        {"type": "Pad", "size": [640, 640], "pad_val": {"img": [114, 114, 114]}},
        {"type": "Normalize", "mean": [1, 2, 3], "std": [4, 5, 6], "to_rgb": True},
    ]
    tasks = [{"module": "Transform", "transforms": steps}, {"module": "mmdet"}]
    (tmp_path / "pipeline.json").write_text(json.dumps({"pipeline": {"tasks": tasks}}))
    made = prepared(path)
    task = made.task
    assert task is not None and (task.fit, task.fill, task.channels) == ("corner", 114, "rgb")
    assert (task.mean, task.scale) == ((1, 2, 3), (4, 5, 6)) and task.labels == ()
    same(rows_of(made), _LEFT)
    other = detector(tmp_path, _floats({"y": np.full((1, 1000), 0.5)}), (224, 224))
    task = prepared(other).task  # whatever files its folder has
    assert task is not None and task.mean != (1, 2, 3) and task.fit != "corner"
    path = _mmdeploy(tmp_path)
    unknown = [{"module": "Transform", "transforms": [*steps, {"type": "Blur"}]}, tasks[1]]
    for wrong in (5, [1, {"a": 2}], unknown):
        (tmp_path / "pipeline.json").write_text(json.dumps({"pipeline": {"tasks": wrong}}))
        assert prepared(path).task is None
