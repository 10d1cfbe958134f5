"""Masks of the objects that a model found in a picture."""

from __future__ import annotations

import math
from typing import Iterator, List, NamedTuple, Sequence, Tuple

from edgekit.device.runtime.agent.fitting import Box, Placed, found_rows
from edgekit.device.runtime.agent.task import TaskSpec


class Span(NamedTuple):
    """Pixels of a row of the picture, from `left` up to `right`, which is excluded."""

    row: int
    left: int
    right: int


class Instance(NamedTuple):
    """An object that was found: its box, and the pixels that are its own, row by row."""

    box: Box
    spans: Tuple[Span, ...]

    @property
    def area(self) -> int:
        """Its pixels."""
        return sum(right - left for _, left, right in self.spans)

    def mask(self, width: int, height: int) -> bytearray:
        """A byte for each pixel of a picture of this size, row by row: 1 for its own, else 0."""
        made = bytearray(width * height)
        for row, left, right in self.spans:
            made[row * width + left : row * width + right] = b"\1" * (right - left)
        return made


class _Along(NamedTuple):
    """How cells of a mask lie along an edge of the picture: pixel p is at cell at(p), where whole
    numbers are the centers of cells."""

    start: float
    step: float

    def at(self, pixel: float) -> float:
        return self.start + (pixel + 0.5) * self.step

    def pixel(self, cell: float) -> float:
        return (cell - self.start) / self.step - 0.5


def instances_of(
    values: Sequence[float],
    width: int,
    masks: bytes,
    extents: Tuple[int, int],
    size: Tuple[int, int],
    task: TaskSpec,
    placed: Placed,
    given: Sequence[str] = (),
) -> List[Instance]:
    """The objects in rows of `width` values (TaskSpec), best first.

    `masks` has a map of `extents` (rows, columns) for each row: s8, above 0 where the object is. It
    covers an input of `size` (rows, columns). Between cells, values are interpolated. `given`
    labels replace those of the task.
    """
    signed, (rows, columns) = memoryview(masks).cast("b"), extents
    across = _along(placed.width, placed.picture[0], placed.left, columns / size[1])
    down = _along(placed.height, placed.picture[1], placed.top, rows / size[0])
    made = []
    for number, box, _ in found_rows(values, width, task, placed, given):
        start = number * rows * columns
        own = signed[start : start + rows * columns]
        made.append(Instance(box, tuple(_spans(own, extents, box, across, down))))
    return sorted(made, key=lambda each: -each.box.score)


def _along(fitted: int, pixels: int, start: int, cells: float) -> _Along:
    return _Along(start * cells - 0.5, fitted / pixels * cells)


def _spans(
    mask: Sequence[int], extents: Tuple[int, int], box: Box, across: _Along, down: _Along
) -> Iterator[Span]:
    """The pixels whose centers are in the box and where the mask is above 0."""
    rows, columns = extents
    first, last = (math.ceil(edge - 0.5) for edge in (box.left, box.right))
    low = min(max(math.floor(across.at(first)), 0), columns - 1)
    high = min(max(math.floor(across.at(last - 1)) + 1, low), columns - 1)
    for y in range(math.ceil(box.top - 0.5), math.ceil(box.bottom - 0.5)):
        at = min(max(down.at(y), 0.0), rows - 1.0)
        row = min(int(at), max(rows - 2, 0))
        share = at - row
        above = mask[row * columns + low : row * columns + high + 1]
        below = mask[(row + 1) * columns + low : (row + 1) * columns + high + 1] or above
        line = [a + share * (b - a) for a, b in zip(above, below)]
        for start, end in _positive(line):
            # Beyond the outer centers, values are theirs.
            left = first if start < 0 else max(first, math.floor(across.pixel(low + start)) + 1)
            right = last if end < 0 else min(last, math.ceil(across.pixel(low + end)))
            if right > left:
                yield Span(y, left, right)


def _positive(line: Sequence[float]) -> Iterator[Tuple[float, float]]:
    """Where the line through values at 0, 1, … is above 0; -1 for what it does not cross."""
    start = -1.0
    inside = line[0] > 0
    for i in range(1, len(line)):
        a, b = line[i - 1], line[i]
        if (b > 0) == inside:
            continue
        crossing = i - 1 + a / (a - b)
        if inside:
            yield start, crossing
        start, inside = crossing, not inside
    if inside:
        yield start, -1.0
