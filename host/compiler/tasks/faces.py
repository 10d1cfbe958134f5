"""Heads of face detectors: MediaPipe's and Ultra-Light-Fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import LETTERBOX, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import (
    Head,
    Limits,
    prior_boxes,
    selected,
    sizes_of,
    suppressed,
)

_LIMITS = Limits(0.5, 0.3)  # MediaPipe's defaults
_BLAZE_PIXELS = {"fit": LETTERBOX, "fill": 0, "mean": (127.5,), "scale": (127.5,)}
_UNIT_PIXELS = {"fit": LETTERBOX, "fill": 0}
_ULTRA_PIXELS = {"fit": STRETCH, "mean": (127.0,), "scale": (128.0,)}
ULTRA_SIDES = {8: (10, 16, 24), 16: (32, 48), 32: (64, 96), 64: (128, 192, 256)}  # by stride


@dataclass(frozen=True)
class _Blaze:
    """One of MediaPipe's detectors: what it finds, how many points each has, the side of its
    picture, and cells along an edge and boxes in each of its grids. With `circle`, the first point
    is the center of a circle around the whole, and the second lies on it."""

    label: str
    points: int
    side: int
    grids: tuple[tuple[int, int], ...]
    pixels: Mapping[str, Any]
    circle: bool = False

    @property
    def count(self) -> int:
        return sum(cells * cells * each for cells, each in self.grids)


_BLAZES = (
    _Blaze("face", 6, 128, ((16, 2), (8, 6)), _BLAZE_PIXELS),
    _Blaze("face", 6, 256, ((16, 2), (8, 6)), _BLAZE_PIXELS),
    _Blaze("face", 6, 192, ((48, 1),), _BLAZE_PIXELS),
    _Blaze("palm", 7, 192, ((24, 2), (12, 6)), _UNIT_PIXELS),
    _Blaze("palm", 7, 256, ((32, 2), (16, 2), (8, 6)), _UNIT_PIXELS),
    _Blaze("person", 4, 224, ((28, 2), (14, 2), (7, 6)), _BLAZE_PIXELS, circle=True),
)


def blaze_face(ends: Ends) -> Iterator[Head]:
    """MediaPipe's detectors of faces, palms and persons: boxes and points in pixels
    from the centers of cells."""
    image = ends.image
    by_size = {t.shape[2]: t for t in ends.outputs if len(t.shape) == 3}
    if len(ends.outputs) != 2 or 1 not in by_size or len(by_size) != 2:
        return
    scores, boxes = by_size.pop(1), *by_size.values()
    known = [
        blaze
        for blaze in _BLAZES
        if image.height == image.width == blaze.side
        and boxes.shape == (1, blaze.count, 4 + 2 * blaze.points)
        and scores.shape == (1, blaze.count, 1)
    ]
    if not known:
        return
    blaze = known[0]
    centers = np.array(list(_centers(blaze.grids))) * image.width

    def rows(to: Appender) -> str:
        box, points = to.add_all(ops.Split(2, (4, 2 * blaze.points)), to.floats(boxes.name))
        if blaze.circle:
            box = _around_circle(to, points)
        shift = np.concatenate([centers, np.zeros_like(centers)], 1)
        box = to.add(ops.Add(), box, to.constant(shift[None]))
        score = to.add(ops.Logistic(), to.floats(scores.name))
        score = to.add(ops.Transpose((0, 2, 1)), score)
        return selected(to, box, score, _LIMITS)

    what = f"outputs are those of MediaPipe's {blaze.label} detectors"
    yield Head("blazeface", what, 1, rows, blaze.pixels, (blaze.label,))


def _around_circle(to: Appender, points: str) -> str:
    """Centers and sizes of squares around circles."""
    count, rest = to.shape(points)[1], to.shape(points)[2] - 4
    center, edge, _ = to.add_all(ops.Split(2, (2, 2, rest)), points)
    far = to.add(ops.Sub(), edge, center)
    squares = to.add(ops.ReduceSum((2,)), to.add(ops.Mul(), far, far))
    radius = to.add(ops.Sqrt(), to.add(ops.Reshape((1, count, 1)), squares))
    return to.add(
        ops.Concat(2), center, to.add(ops.Mul(), radius, to.constant(np.full((1, 1, 2), 2.0)))
    )


def ultra_face(ends: Ends) -> Iterator[Head]:
    """Ultra-Light-Fast: boxes, and scores of background and face. Boxes are relative to priors, or
    corners relative to the picture where the file decodes them, for which it needs powers."""
    if not is_ultra_face(ends):
        return
    priors = np.array(list(square_priors(ends.image, ULTRA_SIDES)))
    decoded = ends.computes(ops.Exp.kind)
    boxes, scores = sorted((t.name for t in ends.outputs), key=lambda n: -ends.shapes()[n][2])

    def rows(to: Appender) -> str:
        _, face = to.add_all(ops.Split(2, (1, 1)), to.floats(scores))
        face = to.add(ops.Transpose((0, 2, 1)), face)
        if decoded:
            corners = to.add(ops.Mul(), to.floats(boxes), to.constant(sizes_of(ends.image)))
            return suppressed(to, corners, face, _LIMITS)
        return selected(to, prior_boxes(to, to.floats(boxes), priors), face, _LIMITS)

    yield Head("ultraface", "outputs are UltraFace's", 1, rows, _ULTRA_PIXELS, ("face",))


def is_ultra_face(ends: Ends) -> bool:
    """Whether there are outputs of the sizes of UltraFace's, whose number of boxes is odd among
    detectors."""
    count = len(list(square_priors(ends.image, ULTRA_SIDES)))
    return sorted(ends.shapes().values()) == [(1, count, 2), (1, count, 4)]


def square_priors(
    image: InputImage, by_stride: Mapping[int, Sequence[int]]
) -> Iterator[tuple[float, float, float, float]]:
    """Boxes around the centers of cells: center and size in pixels."""
    for stride, sides in by_stride.items():
        down, across = image.grid(stride)
        for cell in range(down * across):
            for side in sides:
                x, y = cell % across + 0.5, cell // across + 0.5
                yield x * stride, y * stride, side, side


def _centers(grids: tuple[tuple[int, int], ...]) -> Iterator[tuple[float, float]]:
    """The centers of all boxes, relative to the picture: cells row by row, then their boxes."""
    for cells, boxes in grids:
        for cell in range(cells * cells):
            for _ in range(boxes):
                yield (cell % cells + 0.5) / cells, (cell // cells + 0.5) / cells
