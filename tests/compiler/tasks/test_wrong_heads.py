"""Outputs whose shapes are those of a head, but which say something else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.device.runtime.agent.fitting import Placed, boxes_of
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.tasks import Prepared
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends, image_of
from edgekit.host.compiler.tasks.yolo import anchor_free
from tests.compiler.tasks.test_heads import prepared, rows_of
from tests.support.detectors import built, detector
from tests.support.onnx_models import node

_SIZE = (64, 96)


def test_outputs_of_few_axes_are_no_head(tmp_path):
    """Names and shapes of TensorFlow's detectors, which also give the number of boxes."""
    shapes = {"boxes": (1, 9, 4), "classes": (1, 9), "scores": (1, 9), "count": (1,)}
    outputs = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    assert prepared(detector(tmp_path, outputs, _SIZE)).task is None


@pytest.mark.parametrize("nested", [False, True])
def test_points_behind_the_scores_are_no_classes(tmp_path, nested):
    """Five points of a face, as a file of Ultralytics without its metadata has them."""
    cells = 8 * 12 + 4 * 6 + 2 * 3
    parts = {
        "box": np.full((1, 4, cells), 20), "logit": np.full((1, 1, cells), -9),
        "points": np.full((1, 15, cells), 30),
    }  # fmt: skip
    parts = {name: value.astype(np.float32) for name, value in parts.items()}
    parts["logit"][0, 0, 5] = 3
    names = ["inner", "points"] if nested else ["box", "score", "points"]
    nodes = [
        node("Sigmoid", ["logit"], ["score"]),
        *([node("Concat", ["box", "score"], ["inner"], axis=1)] if nested else []),
        node("Concat", names, ["output0"], axis=1),
    ]
    made = prepared(built(tmp_path, parts, nodes, ["output0"], _SIZE))
    assert made.task is not None and made.task.kind == "pose"
    ((_, score, rest),) = rows_of(made, 7 + 15)
    assert score == pytest.approx(1 / (1 + np.exp(-3)), abs=1e-4)
    assert rest == pytest.approx((10, 10, 30, 30, *[30] * 15), abs=1e-2)


def test_places_of_joints_are_no_classes_of_pixels(tmp_path):
    """ViTPose's configuration names the joints as if they were classes."""
    path = detector(tmp_path, {"heatmaps": np.zeros((1, 3, 16, 24), np.float32)}, _SIZE)
    about = {"model_type": "vit", "id2label": {"0": "nose", "1": "left eye", "2": "right eye"}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    made = prepared(path)
    assert made.task is not None and made.task.kind == "segment"
    (tmp_path / "config.json").write_text(json.dumps({**about, "model_type": "vitpose"}))
    made = prepared(path)
    assert made.task is not None and made.task.kind == "pose"


@pytest.mark.parametrize("unit", [1, (96, 64, 96, 64)])
def test_a_converted_model_may_have_boxes_in_pixels(tmp_path, unit):
    """Ultralytics' .tflite files have boxes relative to the picture, others' in pixels."""
    cells = 8 * 12 + 4 * 6 + 2 * 3
    output = np.zeros((1, 5, cells), np.float32)
    output[0, :4] = 0.5 * np.reshape(np.ones(4) * unit, (4, 1))
    output[0, 4, 7] = 0.75
    graph = import_model(detector(tmp_path, {"y": output}, _SIZE))
    image = image_of(graph, relative=True)
    assert image is not None
    (head,) = anchor_free(Ends(graph, image))
    to = Appender(graph, "d")
    made = Prepared(to.with_output(head.rows(to), "detections"))
    assert rows_of(made) == [(0, 0.75, (24, 16, 72, 48))]


@pytest.mark.parametrize("sizes", [False, True])
def test_boxes_apart_from_scores_may_be_centers_and_sizes(tmp_path, sizes):
    """YOLO-NAS' outputs of such shapes are corners, of pixels that begin with blue."""
    cells = 8 * 12 + 4 * 6 + 2 * 3
    low, high, logits = (np.zeros((1, cells, n), np.float32) for n in (2, 2, 3))
    low[0, 7], high[0, 7], logits[:] = (3, 2), (9, 6), -9
    logits[0, 7, 1] = 3
    parts = {"low": low, "high": high, "l": logits, "two": np.full((1, cells, 1), 2, np.float32)}
    nodes = [
        node("Add", ["low", "high"], ["sum"]), node("Div", ["sum", "two"], ["center"]),
        node("Sub", ["high", "low"], ["size"]),
        node("Concat", ["center", "size"] if sizes else ["low", "high"], ["b"], axis=2),
        node("Mul", ["b", "two"], ["boxes"]), node("Sigmoid", ["l"], ["scores"]),
    ]  # fmt: skip
    made = prepared(built(tmp_path, parts, nodes, ["boxes", "scores"], _SIZE))
    assert made.task is not None and made.task.channels == ("rgb" if sizes else "bgr")
    assert ("which are apart" in made.source) == sizes
    [(label, score, corners)] = rows_of(made)
    assert (label, corners) == (1, (6, 4, 18, 12)) and score == pytest.approx(0.9526, abs=1e-4)


def test_scores_that_are_none_are_no_boxes():
    """Places of points in a row of classes, by a head that the shapes showed."""
    task = TaskSpec("detect", "x", "y")
    placed = Placed(96, 64, 0, 0, (96, 64))
    rows = [0, 1, 0.9, 5, 5, 20, 20], [0, 2, 150, 5, 5, 20, 20]
    for none in (np.nan, np.inf, -0.5, 1e9):  # numbers of classes
        assert boxes_of([0, none, *rows[0][2:]], 7, task, placed) == []
    assert len(boxes_of(rows[0], 7, task, placed)) == 1
    with pytest.raises(InputError, match="scores from 0 to 1, found 150: these outputs are"):
        boxes_of([*rows[0], *rows[1]], 7, task, placed)
    with pytest.raises(InputError, match="a width and height above 0, found -20: these outputs"):
        boxes_of([0, 2, 0.9, 40, 5, 20, 20], 7, task, placed)  # center and size
    assert boxes_of([0, 2, 0.9, 20, 5, 19, 20], 7, task, placed) == []
    with pytest.raises(InputError, match=r"whole numbers of classes, found 0\.9: these outputs"):
        boxes_of([0, 0.9, 1, *rows[0][3:]], 7, task, placed)  # a score


@pytest.mark.parametrize("class_first", [True, False])
def test_the_class_of_a_selected_box_was_an_integer(tmp_path, class_first):
    """Scores and classes are in either order at the end of a row."""
    parts = {
        "box": np.float32([[[1, 2, 30, 40], [5, 6, 7, 8]]]), "score": np.float32([[[0.75], [0.5]]]),
        "each": np.float32([[[0, 0, 1], [0, 1, 0]]]),
    }  # fmt: skip
    last = ["class", "score"] if class_first else ["score", "class"]
    nodes = [
        node("ArgMax", ["each"], ["best"], axis=2, keepdims=1),
        node("Cast", ["best"], ["class"], to=1),
        node("Concat", ["box", *last], ["y"], axis=2),
    ]
    found = rows_of(prepared(built(tmp_path, parts, nodes, ["y"], _SIZE)))
    assert [each[:2] for each in found] == [(2, 0.75), (1, 0.5)]


@pytest.mark.parametrize(("behind", "kind"), [(1, "obb"), (15, "pose"), (51, "pose"), (30, "")])
def test_what_follows_the_class_of_a_selected_box(tmp_path, behind, kind):
    """An angle, points of three numbers, or what may be of two or three."""
    rest = np.full((1, 2, behind), 0.5)
    parts = {
        "box": np.float32([[[20, 30, 8, 6], [50, 40, 60, 60]]]),
        "score": np.float32([[[0.75], [0.125]]]), "each": np.float32([[[0, 0, 1], [1, 0, 0]]]),
        "rest": rest.astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("ArgMax", ["each"], ["best"], axis=2, keepdims=1),
        node("Cast", ["best"], ["class"], to=1),
        node("Concat", ["box", "score", "class", "rest"], ["y"], axis=2),
    ]
    made = prepared(built(tmp_path, parts, nodes, ["y"], _SIZE))
    assert (made.task.kind if made.task else "") == kind
    if made.task is None:
        return
    assert made.task.labels == (("person",) if behind == 51 else ())
    numbers = 12 if kind == "obb" else behind
    (label, score, values), _ = rows_of(made, 7 + numbers)
    assert (label, score) == (2, 0.75)
    if kind == "obb":
        turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
        first = turn @ (4, 3) + (20, 30)
        assert values[4:6] == pytest.approx(first, abs=1e-4)
    else:
        assert values == pytest.approx((20, 30, 8, 6, *[0.5] * behind), abs=1e-4)


def test_selected_persons_are_known_by_their_points(tmp_path):
    """YOLO26's poses without metadata, simplified so that the parts are not seen."""
    output = np.zeros((1, 3, 57), np.float32)
    output[0, 0] = [8, 8, 40, 50, 0.9, 0, *[20.0] * 51]
    made = prepared(detector(tmp_path, {"output0": output}, _SIZE))
    assert made.task is not None and made.task.labels == ("person",)
    assert made.task.kind == "pose"


def test_a_name_does_not_say_whether_boxes_are_decoded(tmp_path):
    output = np.zeros((1, 126, 85), np.float32)  # cells of YOLOX, joined in a way that is not seen
    path = detector(tmp_path, {"y": output}, _SIZE).rename(tmp_path / "yolox_s.onnx")
    assert "may be of yolox, yolox-decoded or yolov6" in prepared(path).source
