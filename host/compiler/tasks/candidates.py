"""The best candidates of a YOLO, each with what follows its box: points, or weights of masks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import InputImage
from edgekit.host.compiler.tasks.heads import KEEP, TOP, YOLO_LIMITS, sizes_of, to_corners

_APART = 1 << 14  # pixels between boxes of different classes: these do not suppress each other


def best_rows(
    to: Appender, image: InputImage, x: str, rest: int, finish: Callable[[str], str]
) -> str:
    """Rows of the best boxes of `x` [1, 4 + classes + rest, n]: centers and sizes, scores and more.
    A box has the class of its best score. `finish` makes what follows in a row of the rest
    [1, candidates, rest]."""
    _, fields, count = to.shape(x)
    classes, candidates = fields - 4 - rest, min(TOP, count)
    _, scores, _ = to.add_all(ops.Split(1, (4, classes, rest)), x)
    best = to.add(ops.ReduceMax(axes=(1,)), scores)
    score, order = to.add_all(ops.TopK(candidates), best)
    some = to.add(ops.Gather(2), x, to.add(ops.Reshape((candidates,)), order))
    some = to.add(ops.Transpose((0, 2, 1)), some)
    box, scores, found = to.add_all(ops.Split(2, (4, classes, rest)), some)
    if image.relative:
        box = to.add(ops.Mul(), box, to.constant(sizes_of(image)))
    corners = to_corners(to, box)
    label = to.add(ops.Convert(DType.F32), to.add(ops.ArgExtreme(2), scores))
    apart = to.add(ops.Mul(), label, to.constant(np.full((1, 1, 1), _APART)))
    each = to.add(ops.Reshape((1, candidates, 1)), score)
    rows = to.add(ops.Concat(2), label, each, corners, finish(found))
    least, overlap = YOLO_LIMITS
    selected = to.add(
        ops.SelectBoxes(min(KEEP, candidates), overlap, least, above=True),
        to.add(ops.Add(), corners, apart),
        to.constant(np.arange(candidates)[None, None], DType.I64),
        to.add(ops.Reshape((1, 1, candidates)), score),
    )
    return gathered(to, rows, selected)


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
