"""Models that find rotated boxes, and what Ultralytics finds with them, in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.detectors import Floats, built, detector, scattered
from tests.support.onnx_models import node

Found = list[tuple[int, float, Floats]]  # class, score, corners [4, 2]


def rotated(
    folder: Path, size: tuple[int, int], classes: int = 3, selects: bool = False, **more: Any
) -> tuple[Path, Found]:
    """A model, and what it finds in pixels of its input, best first."""
    rng = np.random.default_rng(classes)
    count = sum(-(-size[0] // s) * -(-size[1] // s) for s in (8, 16, 32))
    boxes = np.abs(scattered(count, size, 6)).astype(np.float64)
    scores = rng.random((count, classes)) ** 12
    angles = rng.choice([0.1, 0.9, 2.0], (count, 1)) + rng.normal(0, 0.05, (count, 1))
    values = np.concatenate([boxes, scores, angles], 1).astype(np.float32)
    found = _selected(values, classes)
    chosen = [(n, float(values[i, 4:-1].max()), corners(values[i])) for n, i in found]
    if selects:
        rows = [[*values[i, :4], values[i, 4 + n], n, values[i, -1]] for n, i in found]
        output = np.array([[*rows, [0] * 7]], np.float32)
        return detector(folder, {"output0": output}, size, **more), chosen
    parts = {"own": values[:, :-1].T[None], "angle": values[:, -1:].T[None]}
    nodes = [node("Concat", ["own", "angle"], ["output0"], axis=1)]
    return built(folder, parts, nodes, ["output0"], size, **more), chosen


def corners(box: Floats) -> Floats:
    """Corners [4, 2] of a box that begins with center and size, and ends with its angle."""
    x, y, width, height, *_, angle = box.astype(np.float64)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    local = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) * (width / 2, height / 2)
    made: Floats = local @ turn.T + (x, y)
    return made


def _selected(values: Floats, classes: int) -> list[tuple[int, int]]:
    """Class and index of the boxes that no better one of the class overlaps by 0.7."""
    scores = values[:, 4:-1]
    label, best = scores.argmax(1), scores.max(1)
    order = [i for i in np.argsort(-best, kind="stable") if best[i] > 0.25]
    kept = []
    for place, i in enumerate(order):
        before = [j for j in order[:place] if label[j] == label[i]]
        if all(probable_overlap(values[j], values[i]) < 0.7 for j in before):
            kept.append((int(label[i]), int(i)))
    return kept


def probable_overlap(a: Floats, b: Floats) -> float:
    """ProbIoU by the distance of two normal distributions, with matrices."""
    means, shapes = [], []
    for box in (a.astype(np.float64), b.astype(np.float64)):
        cos, sin = np.cos(box[-1]), np.sin(box[-1])
        turn = np.array([[cos, -sin], [sin, cos]])
        means.append(box[:2])
        shapes.append(turn @ np.diag(box[2:4] ** 2 / 12) @ turn.T)
    mean, apart = (shapes[0] + shapes[1]) / 2, means[0] - means[1]
    sizes = np.sqrt(np.linalg.det(shapes[0]) * np.linalg.det(shapes[1]))
    distance = apart @ np.linalg.inv(mean) @ apart / 8
    distance += np.log(np.linalg.det(mean) / sizes) / 2
    return float(1 - np.sqrt(1 - np.exp(-distance)))
