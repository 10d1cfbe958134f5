"""Heads for rotated boxes: YOLO's, and EAST's for text (Zhou et al., 2017)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edgekit.device.runtime.agent.task import CORNERS, POINT_FIELDS, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import candidates_of, gathered, with_image
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import (
    KEEP,
    TOP,
    YOLO_LIMITS,
    Head,
    Limits,
    grid_of,
    in_pixels,
    sizes_of,
)
from edgekit.host.compiler.tasks.yolo import MOST_ROWS, behind_selected, box_counts, is_rotated

_SELECTED = 7  # fields of a box of a model that selects
# Of EAST, whose cells are 4 x 4 pixels: all of a word have about the same box.
_CELL, _DISTANCES, _EAST_TOP = 4, 4, 2000
_EAST_LIMITS = Limits(0.5, 0.4)  # of OpenCV's program
_EAST_NAME = "feature_fusion/"  # begins its outputs: networks after it have another order of edges
_EAST_PIXELS = {"mean": (123.68, 116.78, 103.94), "scale": (1.0,)}


def rotated_head(ends: Ends, stated: bool) -> Head | None:
    """YOLOv8 and later: [1, 4 + classes + 1, boxes] of center, size, scores and angle in radians,
    clockwise on the screen; or of models that select, if it is `stated` or seen, [1, boxes, 7] of
    center, size, score, class and angle."""
    output = ends.only(3)
    if output is None:
        return _east(ends)
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


def is_east(outputs: Iterable[str]) -> bool:
    """Whether outputs of these names are those of EAST's file for TensorFlow."""
    return all(name.startswith(_EAST_NAME) for name in outputs)


def _east(ends: Ends) -> Head | None:
    """EAST: of each cell the score, and the distances from its corner to the upper, right, lower
    and left edge of the box in pixels, and its angle in radians, against the clock."""
    grid, last = (1, *ends.image.grid(_CELL)), _DISTANCES + 1
    by_size = {t.shape[3]: t for t in ends.outputs if t.shape[:3] == grid and len(t.shape) == 4}
    if {*by_size} != {1, last} or len(ends.outputs) != 2 or not is_east(ends.shapes()):
        return None

    def rows(to: Appender) -> str:
        score, given = (
            to.add(ops.Reshape((1, ends.image.cells(_CELL), n)), to.floats(by_size[n].name))
            for n in (1, last)
        )
        top, right, bottom, left, turned = to.add_all(ops.Split(2, (1,) * last), given)
        cos, sin = to.add(ops.Cos(), turned), to.add(ops.Sin(), turned)
        across, down = (
            to.add(ops.Mul(), to.add(ops.Sub(), *each), _number(to, 0.5))
            for each in ((right, left), (bottom, top))
        )
        shift = [
            to.add(op, *(to.add(ops.Mul(), *each) for each in pairs))
            for op, *pairs in (
                (ops.Add(), (across, cos), (down, sin)),
                (ops.Sub(), (down, cos), (across, sin)),
            )
        ]
        cells, _ = grid_of(ends.image, (_CELL,))
        center = to.add(ops.Add(), to.add(ops.Concat(2), *shift), to.constant(_CELL * cells[None]))
        size = (to.add(ops.Add(), *each) for each in ((right, left), (bottom, top)))
        made = to.add(ops.Concat(2), center, *size, score, to.add(ops.Neg(), turned))
        made = to.add(ops.Transpose((0, 2, 1)), made)
        return _rows_of(to, ends.image, made, _EAST_LIMITS, _EAST_TOP)

    return Head("east", "outputs are EAST's", 1, rows, {"fit": STRETCH}, ("text",),
                usual=_EAST_PIXELS, usual_of="pixels as EAST takes them")  # fmt: skip


def _selected_rows(to: Appender, image: InputImage, output: Tensor) -> str:
    return _rows_of(to, image, to.floats(output.name), YOLO_LIMITS, TOP)


def _rows_of(to: Appender, image: InputImage, x: str, limits: Limits, most: int) -> str:
    """Rows of the best boxes of `x` [1, 4 + classes + 1, boxes], the last of which are angles."""
    found = candidates_of(to, image, x, 1, most)
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
        ops.SelectRotated(min(KEEP, count), limits.overlap, limits.least),
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
