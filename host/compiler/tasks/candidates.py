"""The best candidates of a YOLO, each with what follows its box: points, or weights of masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgekit.device.runtime.agent.task import POINT_FIELDS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import InputImage
from edgekit.host.compiler.tasks.heads import (
    KEEP,
    TOP,
    YOLO_LIMITS,
    in_pixels,
    sizes_of,
    to_corners,
)

_APART = 1 << 14  # pixels between boxes of different classes: these do not suppress each other


@dataclass(frozen=True)
class Candidates:
    """The best boxes of all, best first: tensors [1, n, …] of class, score, center and size, and of
    what follows. A box has the class of its best score."""

    label: str
    score: str
    box: str
    rest: str


def candidates_of(
    to: Appender, image: InputImage, x: str, rest: int, most: int = TOP
) -> Candidates:
    """Those of `x` [1, 4 + classes + rest, boxes]."""
    _, fields, boxes = to.shape(x)
    classes, count = fields - 4 - rest, min(most, boxes)
    _, scores, *_ = to.add_all(ops.Split(1, (4, classes, rest)), x)
    score, order = to.add_all(ops.TopK(count), to.add(ops.ReduceMax(axes=(1,)), scores))
    some = to.add(ops.Gather(2), x, to.add(ops.Reshape((count,)), order))
    some = to.add(ops.Transpose((0, 2, 1)), some)
    box, scores, more = to.add_all(ops.Split(2, (4, classes, rest)), some)
    label = to.add(ops.Convert(DType.F32), to.add(ops.ArgExtreme(2), scores))
    score = to.add(ops.Reshape((1, count, 1)), score)
    return Candidates(label, score, in_pixels(to, image, box, sizes_of(image)), more)


def best_rows(
    to: Appender, image: InputImage, x: str, rest: int, finish: Callable[[str], str]
) -> str:
    """Rows of the best boxes of `x` [1, 4 + classes + rest, n]. `finish` makes what follows in a
    row of the rest [1, candidates, rest]."""
    found = candidates_of(to, image, x, rest)
    return kept_rows(to, found.label, found.score, to_corners(to, found.box), finish(found.rest))


def kept_rows(to: Appender, label: str, score: str, corners: str, *more: str) -> str:
    """Rows of candidates [1, n, …], best first, which overlap no better one of their class."""
    count = to.shape(score)[1]
    apart = to.add(ops.Mul(), label, to.constant(np.full((1, 1, 1), _APART)))
    rows = to.add(ops.Concat(2), label, score, corners, *more)
    selected = to.add(
        ops.SelectBoxes(min(KEEP, count), YOLO_LIMITS.overlap, YOLO_LIMITS.least, above=True),
        to.add(ops.Add(), corners, apart),
        to.constant(np.arange(count)[None, None], DType.I64),
        to.add(ops.Reshape((1, 1, count)), score),
    )
    return gathered(to, rows, selected)


def with_scores(to: Appender, found: str, size: int) -> str:
    """Points [1, n, …] of so many numbers with POINT_FIELDS each, certain if they have no score."""
    if size == POINT_FIELDS:
        return found
    _, boxes, numbers = to.shape(found)
    count = numbers // size
    pairs = to.add(ops.Reshape((1, boxes, count, size)), found)
    sure = to.constant(np.ones((1, boxes, count, 1)))
    pairs = to.add(ops.Concat(3), pairs, sure)
    return to.add(ops.Reshape((1, boxes, count * POINT_FIELDS)), pairs)


def gathered(to: Appender, rows: str, selected: str) -> str:
    """The selected of rows [1, n, …] that begin with their class, which is -1 for those of index
    -1."""
    kept = to.shape(selected)[2]
    width = to.shape(rows)[2]
    taken = to.add(ops.Gather(1), rows, to.add(ops.Reshape((kept,)), selected))
    label, rest = to.add_all(ops.Split(2, (1, width - 1)), taken)
    number = to.add(ops.Convert(DType.F32), to.add(ops.Reshape((1, kept, 1)), selected))
    # 0, or -1 for an empty row, whose class becomes label · 0 - 1.
    empty = to.add(ops.Minimum(), number, to.constant(np.zeros((1, 1, 1))))
    filled = to.add(ops.Add(), empty, to.constant(np.ones((1, 1, 1))))
    label = to.add(ops.Add(), to.add(ops.Mul(), label, filled), empty)
    return with_image(to, label, rest)


def with_image(to: Appender, *fields: str) -> str:
    """Rows of the only image, from fields [1, n, …] that begin with the class."""
    count = to.shape(fields[0])[1]
    first = to.constant(np.zeros((1, count, 1)))
    made = to.add(ops.Concat(2), first, *fields)
    return to.add(ops.Reshape((1, 1, count, to.shape(made)[2])), made)
