"""Boxes of the connected areas of a map, as detectors of text give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_rank, operand
from edgekit.host.compiler.ir.ops.detection import FIELDS
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["AreaBoxes"]

_MOST_PIXELS = 1 << 26
_MOST_BOXES = 1 << 16


@dataclass(frozen=True)
class AreaBoxes(Operator):
    """Boxes around areas of pixels above `threshold`, which touch at sides or corners.

    ins: f32 [1, h, w]. Output: [1, 1, keep, 7]: 0, 0, score, left, top, right, bottom in pixels,
    best first, padded with rows of -1. The score is the mean of the box; boxes that are narrower
    than `least`, or whose score is below `sure`, are dropped. Each edge moves outwards by `grow`
    times the box's area over its circumference (Liao et al., 2020), and stays inside the map. Ties
    go to the area that begins first, row by row.
    """

    kind: ClassVar[str] = "area_boxes"
    jumps = True
    elementwise = False
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    keep: int = 1
    threshold: float = 0.3
    sure: float = 0.5
    least: int = 3
    grow: float = 1.6

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x = operand(ins, 0, "map")
        need_rank(x, 3, "map")
        need_dtype(x, (DType.F32,), "map")
        need_positive((*x.shape, self.keep, self.least), "sizes")
        if x.shape[0] != 1 or x.shape[1] * x.shape[2] > _MOST_PIXELS or self.keep > _MOST_BOXES:
            raise ShapeError(
                f"expected one map of at most {_MOST_PIXELS} pixels and {_MOST_BOXES} boxes, found "
                f"{list(x.shape)} and {self.keep}"
            )
        return [((1, 1, self.keep, FIELDS), DType.F32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)[0]
        rows = [self._row(values, box) for box in _boxes(values > np.float32(self.threshold))]
        found = sorted((row for row in rows if row), key=lambda row: -row[2])[: self.keep]
        y = np.full((self.keep, FIELDS), -1, np.float32)
        y[: len(found)] = np.array(found).reshape(-1, FIELDS)
        return [y.reshape(outs[0].shape)]

    def _row(self, values: Array, box: tuple[int, int, int, int]) -> tuple[float, ...]:
        """The row of an area; empty if it is dropped."""
        left, top, right, bottom = box
        width, height = right - left, bottom - top
        if min(width, height) < self.least:
            return ()
        score = np.float32(values[top:bottom, left:right].astype(np.float64).mean())
        if not score >= np.float32(self.sure):
            return ()
        away = np.float32(self.grow) * np.float32(width * height) / np.float32(width + height) / 2
        rows, columns = values.shape
        low = (max(np.float32(edge) - away, np.float32(0)) for edge in (left, top))
        high = (
            min(np.float32(edge) + away, np.float32(end))
            for edge, end in ((right, columns), (bottom, rows))
        )
        return (0, 0, float(score), *map(float, low), *map(float, high))


def _boxes(mask: Array) -> Iterator[tuple[int, int, int, int]]:
    """Left, top, right and bottom (excluded) of each area, in the order of their first pixels."""
    seen = ~mask
    for row, column in np.argwhere(mask):
        if seen[row, column]:
            continue
        seen[row, column] = True
        waiting, ys, xs = [(row, column)], [row], [column]
        while waiting:
            y, x = waiting.pop()
            around = seen[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            for dy, dx in np.argwhere(~around):
                new = max(y - 1, 0) + dy, max(x - 1, 0) + dx
                waiting.append(new)
                ys.append(new[0])
                xs.append(new[1])
            around[:] = True
        yield min(xs), min(ys), max(xs) + 1, max(ys) + 1
