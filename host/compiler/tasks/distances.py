"""YOLOv8's heads before they are decoded, as files for accelerators have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.agent.task import POINT_FIELDS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import best_rows, with_scores
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import YOLO_LIMITS, Head, grid_of, suppressed
from edgekit.host.compiler.tasks.small import corners_at

_STRIDES = (8, 16, 32)
_FACE, _PERSON = 5, 17  # points
_WIDE = 4 * 16  # a distribution over 16 steps for the distance to each edge


@dataclass(frozen=True)
class _Level:
    """The output or outputs of a grid: distributions, and scores or their logits."""

    spread: Tensor
    scores: Tensor
    joined: bool  # in one output
    done: bool  # scores went through a sigmoid

    @property
    def classes(self) -> int:
        return self.scores.shape[1] - (_WIDE if self.joined else 0)

    def parts(self, to: Appender) -> tuple[str, str]:
        """Distributions and logits or scores [1, fields, cells]."""
        if self.joined:
            flat = _flat(to, self.spread)
            spread, scores = to.add_all(ops.Split(1, (_WIDE, self.classes)), flat)
        else:
            spread, scores = _flat(to, self.spread), _flat(to, self.scores)
        return spread, scores if self.done else to.add(ops.Logistic(), scores)


def raw_distances(ends: Ends) -> Iterator[Head]:
    """Of each grid of YOLOv8, 9, 11 and 12 [1, 64, rows, columns] and [1, classes, rows, columns],
    or both joined. Files for Rockchip's accelerators also have the sums of the scores."""
    levels = [_level(ends, ends.image.grid(stride)) for stride in _STRIDES]
    found = [level for level in levels if level is not None]
    classes = {(level.classes, level.done) for level in found}
    if len(found) != len(_STRIDES) or len(classes) != 1:
        return

    def rows(to: Appender) -> str:
        parts = [level.parts(to) for level in found]
        spread, scores = (to.add(ops.Concat(2), *each) for each in zip(*parts, strict=True))
        spread = to.add(ops.Transpose((0, 2, 1)), spread)
        corners = corners_at(to, spread, ends.image, 0.5, _STRIDES)
        return suppressed(to, corners, scores, YOLO_LIMITS)

    yield Head("yolov8-raw", "outputs are like YOLOv8's before decoding", found[0].classes, rows)


def raw_poses(ends: Ends) -> Iterator[Head]:
    """Of each grid of YOLOv8's poses and faces distributions, logits of classes and points, joined
    [1, 64 + classes + numbers of points, rows, columns]."""
    grids = [ends.image.grid(stride) for stride in _STRIDES]
    levels = [t for size in grids for t in ends.outputs if t.shape[2:] == size]
    parts = {tuple(n for _, n in ends.parts(t.name)) for t in levels if t.shape[:1] == (1,)}
    if len(levels) != len(_STRIDES) or len(ends.outputs) != len(levels) or len(parts) != 1:
        return
    sizes = parts.pop()
    if len(sizes) != len(("spread", "scores", "points")) or sizes[0] != _WIDE or sizes[2] % 6 == 0:
        return
    _, classes, numbers = sizes
    each = POINT_FIELDS if numbers % POINT_FIELDS == 0 else 2
    if numbers % each:
        return

    def rows(to: Appender) -> str:
        whole = to.add(ops.Concat(2), *(_flat(to, level) for level in levels))
        spread, scores, points = to.add_all(ops.Split(1, sizes), whole)
        corners = corners_at(
            to, to.add(ops.Transpose((0, 2, 1)), spread), ends.image, 0.5, _STRIDES
        )
        low, high = to.add_all(ops.Split(2, (2, 2)), corners)
        half = to.constant(np.full((1, 1, 1), 0.5))
        middle = to.add(ops.Mul(), to.add(ops.Add(), low, high), half)
        box = to.add(ops.Concat(2), middle, to.add(ops.Sub(), high, low))
        box = to.add(ops.Transpose((0, 2, 1)), box)
        points = _points(to, points, ends.image, each)
        x = to.add(ops.Concat(1), box, to.add(ops.Logistic(), scores), points)
        return best_rows(to, ends.image, x, numbers, lambda found: with_scores(to, found, each))

    count = numbers // each
    label = {_FACE: "face", _PERSON: "person"}.get(count, "") if classes == 1 else ""
    what = "outputs are like YOLOv8's poses before decoding"
    yield Head("yolov8-pose-raw", what, classes, rows, labels=(label,) if label else ())


def _points(to: Appender, points: str, image: InputImage, each: int) -> str:
    """Points [1, numbers, cells] in pixels, and their scores as shares."""
    _, numbers, total = to.shape(points)
    cells, sides = grid_of(image, _STRIDES)
    wide = to.add(ops.Reshape((1, numbers // each, each, total)), points)
    at, *sure = to.add_all(ops.Split(2, (2, each - 2)), wide) if each > 2 else (wide,)
    at = to.add(ops.Mul(), at, to.constant(2 * sides.T[None, None]))
    at = to.add(ops.Add(), at, to.constant((cells * sides).T[None, None]))
    shares = (to.add(ops.Logistic(), score) for score in sure)
    return to.add(ops.Reshape((1, numbers, total)), to.add(ops.Concat(2), at, *shares))


def _level(ends: Ends, size: tuple[int, int]) -> _Level | None:
    """The outputs of a grid of `size` rows and columns; None if they are others."""
    grid = [t for t in ends.outputs if len(t.shape) == 4 and t.shape[2:] == size]
    if any(t.shape[0] != 1 for t in grid) or 3 * len(grid) != len(ends.outputs):
        return None
    if len(grid) == 1:
        parts = ends.parts(grid[0].name)
        fits = [n for _, n in parts] == [_WIDE, grid[0].shape[1] - _WIDE]
        done = fits and ends.is_from(parts[1][0], ops.Logistic.kind)
        return _Level(grid[0], grid[0], True, done) if fits else None
    spreads = [t for t in grid if t.shape[1] == _WIDE]
    others = [t for t in grid if t.shape[1] != _WIDE]  # scores, and then their sums
    if not others or len(spreads) != 1 or [t.shape[1] for t in others[1:]] not in ([], [1]):
        return None
    return _Level(spreads[0], others[0], False, ends.is_from(others[0].name, ops.Logistic.kind))


def _flat(to: Appender, x: Tensor) -> str:
    _, fields, rows, columns = x.shape
    return to.add(ops.Reshape((1, fields, rows * columns)), to.floats(x.name))
