"""Detectors of text by a map: where text is in a picture."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.device.runtime.agent.task import BOXES
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared, rows_of
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value

_HEIGHT, _WIDTH = 64, 96


def _detector(folder, twice=True, sizes=(_HEIGHT, _WIDTH), channels=3, end="map"):
    """Gives the share of white in squares of 4 pixels, enlarged by transposed convolutions."""
    nodes = [
        node("AveragePool", ["x"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        node("ReduceMean", ["p"], ["gray"], axes=[1], keepdims=1),
        node("ConvTranspose", ["gray", "one"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Relu", ["a"], ["b"]),
        node("ConvTranspose", ["b", "one"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    if not twice:
        nodes[2:] = [node("Resize", ["gray", "", "scales"], ["c"], mode="nearest")]
    nodes += [
        node("Mul", ["c", "eight"], ["d"]),
        node("Add", ["d", "minus"], ["e"]),
        node("Sigmoid" if end == "map" else "Identity", ["e"], [end]),
    ]
    constants = {
        "one": np.ones((1, 1, 2, 2), np.float32),
        "scales": np.array([1, 1, 4, 4], np.float32),
        "eight": np.float32(8),
        "minus": np.float32(-4),
    }
    made = model(nodes, [value("x", ["batch", channels, *sizes])], [end], constants)
    return save(made, folder)


def test_boxes_are_around_what_is_text(tmp_path):
    made = prepared(_detector(tmp_path), CompileOptions(task="detect"))
    assert made.task is not None and made.task.labels == ("text",)
    assert "like DB's" in made.source
    x = np.zeros((1, 3, _HEIGHT, _WIDTH), np.float32)
    x[..., 8:16, 16:48] = 1
    x[..., 40:52, 60:92] = 0.8
    x[..., 56:58, 4:8] = 1  # half of a square: not sure
    rows = evaluate(made.graph, {"x": x}).outputs[made.task.output].reshape(-1, 19)
    found = rows[rows[:, 1] >= 0]
    scores = 1 / (1 + np.exp(-np.array([4, 2.4])))
    np.testing.assert_allclose(found[:, 2], scores, rtol=1e-5)
    grown = [1.5 * w * h / (2 * (w + h)) for w, h in ((32, 8), (32, 12))]
    expected = [
        (16 - grown[0], 8 - grown[0], 48 + grown[0], 16 + grown[0]),
        (60 - grown[1], 40 - grown[1], 96, 52 + grown[1]),
    ]
    np.testing.assert_allclose(found[:, 3:7], expected, rtol=1e-5)


def test_pixels_of_the_authors_of_db_are_known_by_name(tmp_path):
    path = _detector(tmp_path).rename(tmp_path / "text_detection_DB_TD500_resnet18_2021sep.onnx")
    task = prepared(path).task
    assert task is not None and (task.scale, task.mean[2]) == ((255.0,), 104.00698793)


@pytest.mark.parametrize("twice", [True, False])
def test_maps_of_doctr_are_before_their_sigmoid(tmp_path, twice):
    """Those that are enlarged in another way, as FAST's, count from a lower share on."""
    made = prepared(_detector(tmp_path, twice, end="logits"))
    assert made.task is not None and made.task.kind == "obb" and "like docTR's" in made.source
    assert (made.task.fit, made.task.mean[0]) == ("letterbox", pytest.approx(0.798 * 255))
    x = np.zeros((1, 3, _HEIGHT, _WIDTH), np.float32)
    x[..., 8:16, 16:48] = 0.32  # a share of 0.19
    x[..., 40:52, 60:92] = 1
    rows = evaluate(made.graph, {"x": x}).outputs[made.task.output].reshape(-1, 19)
    assert (rows[:, 1] >= 0).sum() == (1 if twice else 2)


def test_lines_that_are_not_level_have_rotated_boxes(tmp_path):
    """Upright boxes around them would overlap, and be mostly white."""
    made = prepared(_detector(tmp_path, sizes=(160, 320)), CompileOptions(task="detect"))
    assert made.task is not None and made.task.kind == "obb"
    angle, centers, sides = 0.2, ((150, 60), (160, 95)), (240, 12)
    y, x = np.indices((160, 320)) + 0.5
    page = np.zeros((1, 3, 160, 320), np.float32)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    for center in centers:
        along, across = np.tensordot(turn, np.stack([x - center[0], y - center[1]]), 1)
        page[..., (abs(along) < sides[0] / 2) & (abs(across) < sides[1] / 2)] = 1
    rows = evaluate(made.graph, {"x": page}).outputs[made.task.output].reshape(-1, 19)
    found = sorted((row for row in rows if row[1] >= 0), key=lambda row: row[4])
    assert len(found) == 2
    away = 1.5 * sides[0] * sides[1] / (2 * sum(sides))
    for center, row in zip(centers, found, strict=True):
        half = [side / 2 + away for side in sides]
        expected = center + np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)]) * half @ turn
        corners = row[7:].reshape(4, 3)[:, :2]
        gaps = np.linalg.norm(corners[:, None] - expected[None], axis=2)
        assert sorted(gaps.argmin(axis=1)) == [0, 1, 2, 3]
        assert gaps.min(axis=1).max() < 10  # squares of 4 pixels


def test_words_of_craft_are_as_its_authors_find_them(tmp_path):
    """Dilated by how much of its box a word fills, but for that share, which is taken as 0.85."""
    y, x = np.mgrid[:80, :160]
    maps, expected = np.zeros((1, 80, 160, 2), np.float32), []
    for left, top, side, count, peak in (
        (15, 12, 8, 6, 1.0),
        (30, 50, 16, 5, 0.9),
        (95, 15, 9, 4, 0.5),
    ):
        own = np.zeros((80, 160, 2))
        for n in range(2 * count - 1):  # characters, and links between them
            middle = left + n * side / 2, top
            spread = ((x - middle[0]) ** 2 + (y - middle[1]) ** 2) / (2 * (side / 2.5) ** 2)
            own[..., n % 2] = np.maximum(own[..., n % 2], peak * np.exp(-spread))
        maps[0] = np.maximum(maps[0], 1.05 * own)
        seen = np.argwhere((1.05 * own > 0.4).any(axis=2))
        (low, first), (high, last) = seen.min(0), seen.max(0) + 1
        width, height = last - first, high - low
        grow = math.floor(2 * math.sqrt(len(seen) * min(width, height) / (width * height))) / 2
        if peak > 0.7:
            expected.append([2 * v for v in (first - grow, low - grow, last + grow, high + grow)])
    features = np.zeros((1, 32, 80, 160), np.float32)
    made = prepared(detector(tmp_path, {"y": maps, "f": features}, (160, 320)))
    assert made.task is not None and (made.task.kind, made.task.labels) == ("obb", ("text",))
    images = {"images": np.zeros((1, 3, 160, 320), np.float32)}
    rows = evaluate(made.graph, images).outputs[made.task.output].reshape(-1, 19)
    found = sorted((row for row in rows if row[1] >= 0), key=lambda row: row[4])
    assert len(found) == 2
    for row, corners in zip(found, expected, strict=True):
        np.testing.assert_allclose(row[3:7], corners, atol=2)
        points = row[7:].reshape(4, 3)
        np.testing.assert_allclose(
            [*points[:, :2].min(0), *points[:, :2].max(0)], row[3:7], atol=1e-3
        )
        assert (points[:, 2] == 1).all() and (rows[2:, 1] == -1).all()


def test_a_map_of_segmentation_is_no_text(tmp_path):
    for twice, channels in ((False, 3), (True, 1)):  # digits have no colors
        path = _detector(tmp_path, twice, channels=channels)
        made = prepared(path, CompileOptions(task="guess"))
        assert made.task is None or made.task.kind not in BOXES


@pytest.mark.parametrize("twice", [True, False])
def test_open_sizes_are_those_of_a_page_if_the_map_is_of_text(tmp_path, twice):
    path = _detector(tmp_path, twice, ("height", "width"))
    if not twice:
        with pytest.raises(InputError, match="expected fixed shapes, found open ones"):
            import_for_task(path, CompileOptions())
        return
    graph = import_for_task(path, CompileOptions())
    assert graph.tensors["x"].shape == (1, 3, 640, 640)
    assert "x=1,3,640,640, for a page of text" in graph.notes[0]


_EAST_NAMES = ("feature_fusion/Conv_7/Sigmoid:0", "feature_fusion/concat_3:0")


def _turned_box(column, row, distances, angle):
    """Center and corners of a box, as OpenCV's program for EAST computes them."""
    top, right, bottom, left = distances
    cos, sin = math.cos(angle), math.sin(angle)
    high, wide = top + bottom, right + left
    last = np.array([4 * column + cos * right + sin * bottom, 4 * row - sin * right + cos * bottom])
    above, beside = last - high * np.array([sin, cos]), last - wide * np.array([cos, -sin])
    return np.array([last, above, above + beside - last, beside])


@pytest.mark.parametrize("angle", [0, 0.4, -0.6])
def test_turned_text_of_east(tmp_path, angle):
    rng = np.random.default_rng(7)
    score = np.full((1, _HEIGHT // 4, _WIDTH // 4, 1), 0.4, np.float32)
    given = rng.uniform(3, 5, (1, _HEIGHT // 4, _WIDTH // 4, 5)).astype(np.float32)
    given[..., 4] = angle
    cells = [(3, 3), (12, 4), (20, 3), (5, 12), (15, 11)]
    for number, (column, row) in enumerate(cells):
        score[0, row, column] = 0.9 - 0.05 * number
    score[0, 3, 4], given[0, 3, 4] = 0.6, given[0, 3, 3] + (0, -4, 0, 4, 0)  # the same box
    parts = dict(zip(_EAST_NAMES, (score, given), strict=True))
    made = prepared(detector(tmp_path, parts, (_HEIGHT, _WIDTH)))
    assert made.task is not None and (made.task.kind, made.task.labels) == ("obb", ("text",))
    assert (made.task.mean, made.task.scale) == ((123.68, 116.78, 103.94), (1.0,))
    found = rows_of(made, 7 + 12)
    assert len(found) == len(cells)
    for number, ((column, row), (_, sure, rest)) in enumerate(zip(cells, found, strict=True)):
        expected = _turned_box(column, row, given[0, row, column, :4], angle)
        corners = np.reshape(rest[4:], (4, 3))[:, :2]
        np.testing.assert_allclose(corners, expected, atol=1e-3)
        np.testing.assert_allclose(rest[:4], [*expected.min(0), *expected.max(0)], atol=1e-3)
        assert sure == pytest.approx(0.9 - 0.05 * number)
    others = prepared(detector(tmp_path, {"a": score, "b": given}, (_HEIGHT, _WIDTH)))
    assert others.task is None and "like EAST" in others.source
