"""YOLO's heads for rotated boxes."""

from __future__ import annotations

import numpy as np

from edgekit.device.runtime.agent.task import CORNERS, POINT_FIELDS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import candidates_of, gathered, with_image
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import KEEP, YOLO_LIMITS, Head, in_pixels, sizes_of
from edgekit.host.compiler.tasks.yolo import MOST_ROWS, behind_selected, box_counts, is_rotated

_SELECTED = 7  # fields of a box of a model that selects


def rotated_head(ends: Ends, stated: bool) -> Head | None:
    """YOLOv8 and later: [1, 4 + classes + 1, boxes] of center, size, scores and angle in radians,
    clockwise on the screen; or of models that select, if it is `stated` or seen, [1, boxes, 7] of
    center, size, score, class and angle."""
    output = ends.only(3)
    if output is None:
        return None
    _, fields, boxes = output.shape
    image = ends.image
    if fields > 5 and boxes in box_counts(image, 1) and (stated or is_rotated(ends, output)):
        what = f"'{output.name}' is like YOLOv8's rotated boxes"
        return Head("yolo-obb", what, fields - 5, lambda to: _selected_rows(to, image, output))
    chosen = stated or behind_selected(ends, output) == 1
    if chosen and boxes == _SELECTED and 1 < fields <= MOST_ROWS:
        what = f"'{output.name}' is like YOLO26's rotated boxes, which it selects"
        return Head("yolo-obb", what, 0, lambda to: _given_rows(to, image, output))
    return None


def _selected_rows(to: Appender, image: InputImage, output: Tensor) -> str:
    found = candidates_of(to, image, to.floats(output.name), 1)
    count = to.shape(found.score)[1]
    cos, sin = to.add(ops.Cos(), found.rest), to.add(ops.Sin(), found.rest)
    center, size = to.add_all(ops.Split(2, (2, 2)), found.box)
    # Variances of a uniform distribution over the sides.
    along = to.add(ops.Mul(), to.add(ops.Mul(), size, size), _number(to, 1 / 12))
    a, b = to.add_all(ops.Split(2, (1, 1)), along)
    squares = to.add(ops.Mul(), cos, cos), to.add(ops.Mul(), sin, sin)
    xx, yy = (
        to.add(ops.Add(), to.add(ops.Mul(), p, squares[0]), to.add(ops.Mul(), q, squares[1]))
        for p, q in ((a, b), (b, a))
    )
    xy = to.add(ops.Mul(), to.add(ops.Sub(), a, b), to.add(ops.Mul(), cos, sin))
    shapes = to.add(ops.Concat(2), found.label, center, xx, yy, xy)
    selected = to.add(
        ops.SelectRotated(min(KEEP, count), YOLO_LIMITS.overlap, YOLO_LIMITS.least),
        to.add(ops.Reshape((count, to.shape(shapes)[2])), shapes),
        to.add(ops.Reshape((count,)), found.score),
    )
    rows = to.add(ops.Concat(2), found.label, found.score, _outline(to, center, size, cos, sin))
    return gathered(to, rows, selected)


def _given_rows(to: Appender, image: InputImage, output: Tensor) -> str:
    parts = to.add_all(ops.Split(2, (4, 1, 1, 1)), to.floats(output.name))
    box, score, label, angle = parts
    center, size = to.add_all(ops.Split(2, (2, 2)), in_pixels(to, image, box, sizes_of(image)))
    cos, sin = to.add(ops.Cos(), angle), to.add(ops.Sin(), angle)
    return with_image(to, label, score, _outline(to, center, size, cos, sin))


def _outline(to: Appender, center: str, size: str, cos: str, sin: str) -> str:
    """The upright box around rotated ones, and their corners: x, y and a score of 1."""
    count = to.shape(center)[1]
    wide, high = to.add_all(ops.Split(2, (1, 1)), to.add(ops.Mul(), size, _number(to, 0.5)))
    turn = to.add(ops.Concat(2), cos, sin)
    back = to.add(ops.Concat(2), to.add(ops.Neg(), sin), cos)
    right, down = to.add(ops.Mul(), wide, turn), to.add(ops.Mul(), high, back)
    bottom, top = to.add(ops.Add(), center, down), to.add(ops.Sub(), center, down)
    reach = to.add(ops.Add(), to.add(ops.Abs(), right), to.add(ops.Abs(), down))
    sure = to.constant(np.ones((1, count, 1)))
    corners = [
        part
        for side, op in (
            (bottom, ops.Add()),
            (top, ops.Add()),
            (top, ops.Sub()),
            (bottom, ops.Sub()),
        )
        for part in (to.add(op, side, right), sure)
    ]
    low, above = to.add(ops.Sub(), center, reach), to.add(ops.Add(), center, reach)
    made = to.add(ops.Concat(2), low, above, *corners)
    assert to.shape(made)[2] == 4 + CORNERS * POINT_FIELDS
    return made


def _number(to: Appender, value: float) -> str:
    return to.constant(np.full((1, 1, 1), value))
