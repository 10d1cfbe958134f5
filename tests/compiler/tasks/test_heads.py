"""Heads of detectors: recognized by shapes, and decoded as NumPy decodes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.inputs import DetectionNotes
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import Prepared, with_task
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends, image_of
from edgekit.host.compiler.tasks.ssd import postprocessed_ssd
from edgekit.host.errors import InputError
from tests.support.detectors import best_boxes, detector, scattered

_SIZE = (64, 96)
_CELLS = 8 * 12 + 4 * 6 + 2 * 3
_GUESS = CompileOptions(task="guess")


def prepared(path: Path, options: CompileOptions = _GUESS) -> Prepared:
    return with_task(path, import_model(path), options)


def rows_of(made: Prepared, width: int = 7) -> list[tuple[int, float, tuple[float, ...]]]:
    graph = made.graph
    x = np.zeros(graph.tensors[graph.inputs[0]].shape, np.float32)
    rows = evaluate(graph, {graph.inputs[0]: x}).outputs[graph.outputs[-1]].reshape(-1, width)
    found = [(int(r[1]), float(r[2]), tuple(r[3:].tolist())) for r in rows if r[1] >= 0]
    return sorted(found, key=lambda each: -each[1])


def same(found, expected) -> None:
    assert [each[0] for each in found] == [each[0] for each in expected]
    for (_, score, corners), (_, wanted, others) in zip(found, expected, strict=True):
        assert score == pytest.approx(wanted, abs=1e-5)
        assert corners == pytest.approx(others, abs=1e-2)


@pytest.mark.parametrize("classes", [1, 3, 80])
def test_centers_and_sizes_of_all_cells(tmp_path, classes):
    rng = np.random.default_rng(classes)
    boxes, scores = scattered(_CELLS, _SIZE, classes), rng.random((_CELLS, classes)) ** 8
    output = np.concatenate([boxes, scores], 1).T[None].astype(np.float32)
    made = prepared(detector(tmp_path, {"output0": output}, _SIZE))
    assert made.task is not None and made.task.fit == "letterbox"
    assert len(made.task.labels) == (80 if classes == 80 else 0)
    expected = best_boxes(boxes, scores.astype(np.float32), 0.25, 0.7)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])


def test_three_boxes_of_a_cell_with_an_object_score(tmp_path):
    rng = np.random.default_rng(5)
    boxes = scattered(3 * _CELLS, _SIZE, 5)
    sure, classes = rng.random((3 * _CELLS, 1)) ** 2, rng.random((3 * _CELLS, 2)) ** 3
    output = np.concatenate([boxes, sure, classes], 1)[None].astype(np.float32)
    made = prepared(detector(tmp_path, {"output0": output}, _SIZE))
    expected = best_boxes(boxes, (sure * classes).astype(np.float32), 0.25, 0.45)
    assert len(expected) > 3
    same(rows_of(made), expected)


def test_boxes_that_the_model_selects(tmp_path):
    output = np.array([[[1, 2, 30, 40, 0.9, 3], [5, 6, 7, 8, 0.4, 0]]], np.float32)
    made = prepared(detector(tmp_path, {"output0": output}, _SIZE))
    same(rows_of(made), [(3, 0.9, (1, 2, 30, 40)), (0, 0.4, (5, 6, 7, 8))])


def test_a_grid_with_object_box_and_class_scores(tmp_path):
    output = np.full((1, 5 + 80, 4, 6), -9, np.float32)
    output[0, [0, *range(5, 85)]] = 0
    output[0, :, 2, 3] = [0.9, 0.5, -0.5, 0, 1, *(0.8 if c == 2 else 0 for c in range(80))]
    made = prepared(detector(tmp_path, {"758": output}, _SIZE))
    x, y = (3 + np.tanh(0.5)) * 16, (2 - np.tanh(0.5)) * 16
    width, height = 0.5 * 96, 64 / (1 + np.exp(-1))
    corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    same(rows_of(made), [(2, 0.9**0.6 * 0.8**0.4, corners)])
    assert made.task is not None and made.task.channels == "bgr"


def test_results_of_a_postprocessing_operator(tmp_path):
    boxes = np.array([[[0.25, 0.5, 0.75, 1], [0, 0, 0.5, 0.5]]], np.float32)
    ends = {"b": boxes, "c": np.float32([[2, 0]]), "s": np.float32([[0.9, 0.3]])}
    path = detector(tmp_path, {"n": np.float32([2]), **ends}, _SIZE)
    graph = import_model(path)
    image = image_of(graph, relative=True)
    assert image is not None
    ends = Ends(graph, image)
    (head,) = postprocessed_ssd(ends, DetectionNotes(("b", "c", "s", "n")))
    assert not list(postprocessed_ssd(ends, DetectionNotes(("b", "c", "s"))))
    to = Appender(graph, "d")
    made = to.with_output(head.rows(to), "detections")
    same(rows_of(Prepared(made)), [(2, 0.9, (48, 16, 96, 48)), (0, 0.3, (0, 0, 48, 32))])


def test_what_is_not_known_is_left_alone(tmp_path):
    for shape in (
        (1, 84, 77),
        (1, _CELLS, 6),
        (1, 3, 8, 8),
        (1, 128),
        (2, 9, _CELLS),
        (1, 56, 77),
    ):
        path = detector(tmp_path, {"y": np.zeros(shape, np.float32)}, _SIZE)
        made = prepared(path)
        assert made.task is None and made.graph.outputs == ("y",)
    with pytest.raises(InputError, match=r"--task detect: expected outputs of a known detector"):
        prepared(path, CompileOptions(task="detect"))


def test_only_the_file_decides_if_nothing_is_to_be_guessed(tmp_path):
    output = np.zeros((1, 6, _CELLS), np.float32)
    path = detector(tmp_path, {"y": output}, _SIZE)
    assert prepared(path, CompileOptions()).task is None
    assert prepared(path, CompileOptions(task="detect")).task is not None
    names = {0: "cat", 1: "dog"}
    stated = detector(tmp_path, {"y": output}, _SIZE, task="detect", names=names, stride=32)
    task = prepared(stated, CompileOptions()).task
    assert task is not None and task.labels == ("cat", "dog")
    assert prepared(stated, CompileOptions(task="none")).task is None


@pytest.mark.parametrize("names", ["{0: 'a'", "7", "{0: [1]}", "'" * 99, "{1: 'x'}", "(" * 9999])
def test_metadata_that_cannot_be_read_names_nothing(tmp_path, names):
    output = np.zeros((1, 6, _CELLS), np.float32)
    path = detector(tmp_path, {"y": output}, _SIZE, task="detect", names=names)
    task = prepared(path, CompileOptions(task="detect")).task
    assert task is not None and task.labels == ()
