"""YOLOv2's grid, decoded one box after the other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, detector

_SIZE = (96, 64)
# Of the last box of a cell, in cells.
_ANCHORS = {20: (16.62, 10.52), 80: (9.77052, 9.16828), 11: (9.77052, 9.16828)}


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("classes", [20, 80, 11])
def test_a_grid_of_five_boxes_in_each_cell(tmp_path, classes):
    """Custom Vision has COCO's boxes for any classes."""
    fields = 5 + classes
    grid = np.random.default_rng(classes).normal(0, 0.5, (1, 5 * fields, 3, 2)).astype(np.float32)
    grid[0, 4::fields] -= 9  # no object
    at = 4 * fields
    grid[0, at + 4, 1, 1], grid[0, at + 5 + 7, 1, 1] = 4, 9
    grid[0, at + 4, 2, 0], grid[0, at + 5 + 3, 2, 0] = 3, 9
    name = "model_outputs0" if classes == 11 else "grid"
    listed = "labels.txt" if classes == 11 else "other.md"
    (tmp_path / listed).write_text("\n".join(f"part {i}" for i in range(11)))
    made = prepared(detector(tmp_path, {name: grid}, _SIZE))
    labels = {20: "cat", 80: "truck", 11: "part 7"}
    assert made.task is not None and made.task.labels[7] == labels[classes]
    assert (made.task.fit, made.task.channels) == (
        ("stretch", "bgr") if classes == 11 else ("letterbox", "rgb")
    )
    boxes, scores = [], np.zeros((2, classes), np.float32)
    for number, (row, column) in enumerate(((1, 1), (2, 0))):
        x, y, w, h, sure, *each = grid[0, at : at + fields, row, column].astype(float)
        sides = np.exp([w, h]) * _ANCHORS[classes]
        boxes.append(32 * np.array([column + _sigmoid(x), row + _sigmoid(y), *sides]))
        scores[number] = _sigmoid(sure) * np.exp(each) / np.exp(each).sum()
    same(rows_of(made), best_boxes(np.array(boxes, np.float32), scores, 0.3, 0.45))


def test_maps_of_other_channels_are_no_boxes(tmp_path):
    grid = np.zeros((1, 130, 3, 2), np.float32)
    assert prepared(detector(tmp_path, {"grid": grid}, _SIZE)).task is None
