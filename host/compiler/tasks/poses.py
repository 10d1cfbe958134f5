"""Heads that find people or animals with the points of their bodies."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from edgekit.device.runtime.agent.task import FIELDS, LETTERBOX, POINT_FIELDS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import KEEP, TOP, YOLO_LIMITS, Head, sizes_of, to_corners
from edgekit.host.compiler.tasks.yolo import MOST_ROWS, box_counts

PERSON_POINTS = (17, 3)  # of COCO: points, and numbers of each
_APART = 1 << 14  # pixels between boxes of different classes: these do not suppress each other


def pose_heads(ends: Ends, points: tuple[int, int]) -> Iterator[Head]:
    """YOLO's poses: [1, 4 + classes + numbers of points, boxes], or [1, rows, 6 + numbers of
    points] of models that select. `points` and the numbers of each are from the file's metadata.
    """
    yield from _move_net(ends)
    output = ends.only(3)
    if output is None:
        return
    numbers = points[0] * points[1]
    _, fields, boxes = output.shape
    if fields > 4 + numbers and boxes in box_counts(ends.image, 1):
        yield Head(
            "yolo-pose",
            f"'{output.name}' is like YOLOv8's poses",
            fields - 4 - numbers,
            lambda to: _selected_rows(to, ends.image, output.name, points),
            labels=("person",) if fields == 5 + numbers and points == PERSON_POINTS else (),
        )
    elif boxes == 6 + numbers and 1 < fields <= MOST_ROWS:
        yield Head(
            "yolo-pose",
            f"'{output.name}' is like YOLO26's poses, which it selects",
            0,
            lambda to: _given_rows(to, ends.image, output.name, points),
        )


def _move_net(ends: Ends) -> Iterator[Head]:
    """MoveNet: [1, 1, 17, 3] of y, x and score of each point, or [1, persons, 56] with top, left,
    bottom, right and score of the person behind them; all relative to the picture."""
    if len(ends.outputs) != 1:
        return
    output, (count, _) = ends.outputs[0], PERSON_POINTS
    several = len(output.shape) == 3 and output.shape[2] == 3 * count + 5
    if output.shape != (1, 1, count, 3) and not several:
        return
    if output.shape[0] != 1 or output.dtype is not DType.F32:
        return
    persons = output.shape[1]

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, persons, math.prod(output.shape[2:]))), output.name)
        if several:
            x, edges, score = to.add_all(ops.Split(2, (3 * count, 4, 1)), x)
            edges = to.add(ops.Reshape((1, persons, 2, 2)), edges)
        points = to.add(ops.Reshape((1, persons, count, 3)), x)
        at, sure = to.add_all(ops.Split(3, (2, 1)), points)
        if not several:
            low, high = (to.add(op, at) for op in (ops.ReduceMin((2,)), ops.ReduceMax((2,))))
            edges = to.add(
                ops.Concat(2),
                *(to.add(ops.Reshape((1, persons, 1, 2)), each) for each in (low, high)),
            )
            score = to.add(ops.Reshape((1, persons, 1)), to.add(ops.ReduceSum((2,)), sure))
            score = to.add(ops.Mul(), score, to.constant(np.full((1, 1, 1), 1 / count)))
        unit = to.constant(sizes_of(ends.image)[0, 0, :2][None, None, None])
        flip = to.constant(np.array([1, 0]), DType.I64)
        at, edges = (to.add(ops.Mul(), to.add(ops.Gather(3), v, flip), unit) for v in (at, edges))
        found = to.add(ops.Reshape((1, persons, 3 * count)), to.add(ops.Concat(3), at, sure))
        corners = to.add(ops.Reshape((1, persons, 4)), edges)
        none = to.constant(np.zeros((1, persons, 2)))
        made = to.add(ops.Concat(2), none, score, corners, found)
        return to.add(ops.Reshape((1, 1, persons, FIELDS + 3 * count)), made)

    pixels = {"fit": LETTERBOX, "fill": 0, "mean": (0.0,), "scale": (1.0,)}
    what = f"'{output.name}' is like MoveNet's"
    yield Head("movenet", what, 1, rows, pixels, ("person",))


def _selected_rows(to: Appender, image: InputImage, name: str, points: tuple[int, int]) -> str:
    x = to.floats(name)
    _, fields, count = to.shape(x)
    numbers, candidates = points[0] * points[1], min(TOP, count)
    classes = fields - 4 - numbers
    _, scores, _ = to.add_all(ops.Split(1, (4, classes, numbers)), x)
    best = to.add(ops.ReduceMax(axes=(1,)), scores)
    score, order = to.add_all(ops.TopK(candidates), best)
    some = to.add(ops.Gather(2), x, to.add(ops.Reshape((candidates,)), order))
    some = to.add(ops.Transpose((0, 2, 1)), some)
    box, scores, found = to.add_all(ops.Split(2, (4, classes, numbers)), some)
    if image.relative:
        box = to.add(ops.Mul(), box, to.constant(sizes_of(image)))
    corners = to_corners(to, box)
    label = to.add(ops.Convert(DType.F32), to.add(ops.ArgExtreme(2), scores))
    apart = to.add(ops.Mul(), label, to.constant(np.full((1, 1, 1), _APART)))
    each = to.add(ops.Reshape((1, candidates, 1)), score)
    rows = to.add(ops.Concat(2), label, each, corners, _in_pixels(to, image, found, points))
    least, overlap = YOLO_LIMITS
    selected = to.add(
        ops.SelectBoxes(min(KEEP, candidates), overlap, least, above=True),
        to.add(ops.Add(), corners, apart),
        to.constant(np.arange(candidates)[None, None], DType.I64),
        to.add(ops.Reshape((1, 1, candidates)), score),
    )
    return _gathered(to, rows, selected)


def _gathered(to: Appender, rows: str, selected: str) -> str:
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
    first = to.constant(np.zeros((1, kept, 1)))
    made = to.add(ops.Concat(2), first, label, rest)
    return to.add(ops.Reshape((1, 1, kept, 1 + width)), made)


def _given_rows(to: Appender, image: InputImage, name: str, points: tuple[int, int]) -> str:
    x = to.floats(name)
    count = to.shape(x)[1]
    box, score, label, found = to.add_all(ops.Split(2, (4, 1, 1, points[0] * points[1])), x)
    if image.relative:
        box = to.add(ops.Mul(), box, to.constant(sizes_of(image)))
    first = to.constant(np.zeros((1, count, 1)))
    made = to.add(ops.Concat(2), first, label, score, box, _in_pixels(to, image, found, points))
    return to.add(ops.Reshape((1, 1, count, FIELDS + points[0] * POINT_FIELDS)), made)


def _in_pixels(to: Appender, image: InputImage, found: str, points: tuple[int, int]) -> str:
    """POINT_FIELDS of each point [1, n, …]: in pixels of the input, and certain if the model does
    not say how visible it is."""
    count, size = points
    boxes = to.shape(found)[1]
    if size < POINT_FIELDS:
        pairs = to.add(ops.Reshape((1, boxes, count, size)), found)
        sure = to.constant(np.ones((1, boxes, count, 1)))
        pairs = to.add(ops.Concat(3), pairs, sure)
        found = to.add(ops.Reshape((1, boxes, count * POINT_FIELDS)), pairs)
    if not image.relative:
        return found
    unit = np.tile([image.width, image.height, 1], count)
    return to.add(ops.Mul(), found, to.constant(unit[None, None]))
