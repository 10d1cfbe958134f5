"""Rotated boxes of the connected areas of a map, as detectors of text give it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from edgekit.device.runtime.agent.task import CORNERS, POINT_FIELDS
from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_rank, operand
from edgekit.host.compiler.ir.ops.detection import FIELDS
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["AreaBoxes"]

_MOST_PIXELS = 1 << 26
_MOST_BOXES = 1 << 16
_ROW = FIELDS + CORNERS * POINT_FIELDS

_Point: TypeAlias = tuple[int, int]  # x, y
_Spans: TypeAlias = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class AreaBoxes(Operator):
    """The smallest rectangles around areas of pixels above `threshold`, which touch at sides or
    corners.

    ins: f32 [1, h, w]. Output: [1, 1, keep, 19], best first, padded with rows of -1: 0, 0, score,
    left, top, right and bottom of the upright box around the rectangle, inside the map, and its
    corners in pixels, clockwise: x, y and 1. The score is the mean of the pixels in the rectangle.
    Rectangles that are narrower than `least`, or whose score is below `sure`, are dropped. Each
    side moves outwards by `grow` times the area over the circumference (Liao et al., 2020). Ties go
    to the area that begins first, row by row.
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
        return [((1, 1, self.keep, _ROW), DType.F32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        values = required(x, 0)[0]
        rows = [self._row(values, _smallest(_hull(spans))) for spans in self._areas(values)]
        found = sorted((row for row in rows if row), key=lambda row: -row[2])[: self.keep]
        y = np.full((self.keep, _ROW), -1, np.float32)
        y[: len(found)] = np.array(found).reshape(-1, _ROW)
        return [y.reshape(outs[0].shape)]

    def _areas(self, values: Array) -> Iterator[_Spans]:
        """Left and right (excluded) by row of each area, in the order of their first pixels."""
        mask = values > np.float32(self.threshold)
        seen = ~mask
        for row, column in np.argwhere(mask):
            if seen[row, column]:
                continue
            seen[row, column] = True
            waiting = [(int(row), int(column))]
            spans: _Spans = {}
            while waiting:
                y, x = waiting.pop()
                left, right = spans.get(y, (x, x))
                spans[y] = min(left, x), max(right, x + 1)
                around = seen[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
                for dy, dx in np.argwhere(~around):
                    waiting.append((max(y - 1, 0) + int(dy), max(x - 1, 0) + int(dx)))
                around[:] = True
            yield spans

    def _row(self, values: Array, found: _Rectangle) -> tuple[float, ...]:
        """The row of a rectangle; empty if it is dropped."""
        if min(found.sides) < self.least:
            return ()
        score = np.float32(found.mean(values))
        if not score >= np.float32(self.sure):
            return ()
        corners = found.corners(float(np.float32(self.grow)))
        extents = values.shape[1], values.shape[0]
        low = np.maximum(corners.min(axis=0), 0)
        high = np.minimum(corners.max(axis=0), extents)
        points = np.concatenate([corners, np.ones((CORNERS, 1))], axis=1)
        return (0, 0, float(score), *low, *high, *points.ravel())


class _Rectangle(NamedTuple):
    """A rectangle along a vector: least and most of the products of points with it (`forward`), and
    with its normal (`across`)."""

    x: int
    y: int
    forward: tuple[int, int]
    across: tuple[int, int]

    @property
    def sides(self) -> tuple[float, float]:
        size = math.sqrt(self.x**2 + self.y**2)
        (low, high), (first, last) = self.forward, self.across
        return (high - low) / size, (last - first) / size

    @property
    def pixels(self) -> float:
        (low, high), (first, last) = self.forward, self.across
        return float(high - low) * float(last - first) / float(self.x**2 + self.y**2)

    def mean(self, values: Array) -> float:
        """The mean of the pixels whose centers are inside."""
        y, x = np.indices(values.shape) * 2 + 1
        forward, across = x * self.x + y * self.y, y * self.x - x * self.y
        inside = (forward >= 2 * self.forward[0]) & (forward <= 2 * self.forward[1])
        inside &= (across >= 2 * self.across[0]) & (across <= 2 * self.across[1])
        return float(values[inside].astype(np.float64).mean())

    def corners(self, grow: float) -> Array:
        """x and y of the corners, clockwise, after the sides have moved outwards."""
        length, width = self.sides
        away = grow * length * width / (length + width) / 2
        size = math.sqrt(self.x**2 + self.y**2)
        low, high = self.forward[0] / size - away, self.forward[1] / size + away
        first, last = self.across[0] / size - away, self.across[1] / size + away
        x, y = self.x / size, self.y / size
        around = ((low, first), (high, first), (high, last), (low, last))
        return np.array([(f * x - a * y, f * y + a * x) for f, a in around])


def _hull(spans: _Spans) -> list[_Point]:
    """The convex hull of an area, clockwise from its upper right corner."""
    rows = sorted(spans)
    lines = [*rows, rows[-1] + 1]
    left: list[_Point] = []
    right: list[_Point] = []
    for y in lines:
        beside = [spans[row] for row in (y - 1, y) if row in spans]
        _append(right, (max(end for _, end in beside), y))
    for y in reversed(lines):
        beside = [spans[row] for row in (y - 1, y) if row in spans]
        _append(left, (min(start for start, _ in beside), y))
    return right + left


def _append(side: list[_Point], new: _Point) -> None:
    """Append a point to a side of a hull; points that are no corners any more go."""
    while len(side) >= 2:
        (ax, ay), (bx, by) = side[-2:]
        if (bx - ax) * (new[1] - by) > (by - ay) * (new[0] - bx):
            break
        side.pop()
    side.append(new)


def _smallest(hull: Sequence[_Point]) -> _Rectangle:
    """The smallest rectangle around a hull; one of its sides is a side of the hull."""
    found = []
    for (ax, ay), (bx, by) in zip(hull, [*hull[1:], hull[0]], strict=True):
        ex, ey = bx - ax, by - ay
        forward = [x * ex + y * ey for x, y in hull]
        across = [y * ex - x * ey for x, y in hull]
        limits = (min(forward), max(forward)), (min(across), max(across))
        found.append(_Rectangle(ex, ey, *limits))
    return min(found, key=lambda each: each.pixels)
