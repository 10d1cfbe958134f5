"""Heads of face detectors whose outputs are separate for each grid: YuNet and SCRFD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.agent.task import BGR, CORNER
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import Head, Limits, grid_of, selected, suppressed

_STRIDES = (8, 16, 32)
_POINTS = 10  # x and y of eyes, nose and corners of the mouth
_YUNET_LIMITS = Limits(0.9, 0.3)  # of OpenCV's FaceDetectorYN
_YUNET_PIXELS = {"fit": CORNER, "fill": 0, "channels": BGR, "mean": (0.0,), "scale": (1.0,)}
_SCRFD_LIMITS = Limits(0.5, 0.4)  # of its authors' program
_SCRFD_PIXELS = {"fit": CORNER, "fill": 0, "mean": (127.5,), "scale": (128.0,)}
_LABELS = ("face",)


@dataclass(frozen=True)
class _Level:
    """The outputs of a grid: scores [n, 1] and boxes [n, 4], perhaps of a batch of one."""

    scores: tuple[Tensor, ...]
    boxes: Tensor


def yu_net(ends: Ends) -> Iterator[Head]:
    """YuNet: scores of class and object, and boxes as shift and logarithm of the size, in cells."""
    levels = _levels(ends, of_a_cell=1, scores=2)
    if not levels:
        return
    cells, sides = grid_of(ends.image, _STRIDES)

    def rows(to: Appender) -> str:
        shift, size = to.add_all(ops.Split(2, (2, 2)), _joined(to, [v.boxes for v in levels]))
        centers = to.add(ops.Add(), shift, to.constant(cells[None]))
        box = to.add(ops.Concat(2), centers, to.add(ops.Exp(), size))
        box = to.add(ops.Mul(), box, to.constant(sides[None]))
        one, other = (_joined(to, [v.scores[i] for v in levels]) for i in range(2))
        score = to.add(ops.Sqrt(), to.add(ops.Mul(), _share(to, one), _share(to, other)))
        return selected(to, box, to.add(ops.Transpose((0, 2, 1)), score), _YUNET_LIMITS)

    yield Head("yunet", "outputs are those of YuNet", 1, rows, _YUNET_PIXELS, _LABELS)


def scrfd(ends: Ends) -> Iterator[Head]:
    """SCRFD: two boxes of a cell, as distances of the edges from its corner in cells."""
    levels = _levels(ends, of_a_cell=2, scores=1)
    if not levels:
        return
    cells, sides = (np.repeat(each, 2, axis=0) for each in grid_of(ends.image, _STRIDES))

    def rows(to: Appender) -> str:
        distance = _joined(to, [v.boxes for v in levels])
        distance = to.add(ops.Mul(), distance, to.constant(sides[None]))
        low, high = to.add_all(ops.Split(2, (2, 2)), distance)
        at = to.constant((cells * sides)[None])
        corners = to.add(ops.Concat(2), to.add(ops.Sub(), at, low), to.add(ops.Add(), at, high))
        score = to.add(ops.Transpose((0, 2, 1)), _joined(to, [v.scores[0] for v in levels]))
        return suppressed(to, corners, score, _SCRFD_LIMITS)

    yield Head("scrfd", "outputs are those of SCRFD", 1, rows, _SCRFD_PIXELS, _LABELS)


def _levels(ends: Ends, of_a_cell: int, scores: int) -> list[_Level]:
    """The outputs of all grids if they are such, with or without points; else none."""
    levels, used = [], 0
    for stride in _STRIDES:
        count = of_a_cell * ends.image.cells(stride)
        own = [t for t in ends.outputs if t.shape[:-1] in ((count,), (1, count))]
        by_width = {n: [t for t in own if t.shape[-1] == n] for n in (1, 4, _POINTS)}
        if [len(each) for each in by_width.values()][:2] != [scores, 1]:
            return []
        levels.append(_Level(tuple(by_width[1]), by_width[4][0]))
        used += sum(map(len, by_width.values()))
    with_points = (scores + 2) * len(_STRIDES)
    return levels if used == len(ends.outputs) in (with_points, with_points - 3) else []


def _joined(to: Appender, tensors: Sequence[Tensor]) -> str:
    """The outputs of all grids as one [1, n, width]."""
    width = tensors[0].shape[-1]
    flat = [to.add(ops.Reshape((1, t.shape[-2], width)), to.floats(t.name)) for t in tensors]
    return to.add(ops.Concat(1), *flat)


def _share(to: Appender, scores: str) -> str:
    """Scores cut to 0..1."""
    limits: Array = np.ones((1, 1, 1), np.float32)
    return to.add(
        ops.Minimum(), to.add(ops.Maximum(), scores, to.constant(0 * limits)), to.constant(limits)
    )
