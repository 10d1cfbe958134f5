"""Heads of YOLO whose outputs are one tensor for each grid, with boxes relative to anchors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Graph, Node, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import Head, grid_of, selected
from edgekit.host.compiler.tasks.yolo import V5_LIMITS

_BOXES = 3  # of a cell
_SIZE = 1  # the part of a box's width and height
_V3 = ((10, 13, 16, 30, 33, 23), (30, 61, 62, 45, 59, 119), (116, 90, 156, 198, 373, 326))
_V7 = ((12, 16, 19, 36, 40, 28), (36, 75, 76, 55, 72, 146), (142, 110, 192, 243, 459, 401))
_TINY = ((10, 14, 23, 27, 37, 58), (81, 82, 135, 169, 344, 319))
_V4_TINY = ((23, 27, 37, 58, 81, 82), (81, 82, 135, 169, 344, 319))
_FOCUS = 12  # channels of a picture of which four neighboring pixels became one


@dataclass(frozen=True)
class _Family:
    """Widths and heights of anchors by grid. `powers`: sizes are powers, as of YOLOv3; else
    squares, as of YOLOv5. `reach`: cells across which the centers of a cell's boxes may be, by
    grid; 1 if empty, or 2 for squares."""

    name: str
    strides: tuple[int, ...]
    anchors: tuple[tuple[int, ...], ...]
    powers: bool = False
    reach: tuple[float, ...] = ()


_FAMILIES = (
    _Family("yolov3", (8, 16, 32), _V3, powers=True),
    _Family("yolov3-tiny", (16, 32), _TINY, powers=True),
    _Family("yolov4", (8, 16, 32), _V7, powers=True, reach=(1.2, 1.1, 1.05)),
    _Family("yolov4-tiny", (16, 32), _V4_TINY, powers=True, reach=(1.05, 1.05)),
    _Family("yolov5", (8, 16, 32), _V3),
    _Family("yolov7", (8, 16, 32), _V7),
    _Family("yolov7-tiny", (8, 16, 32), _V3),
)


def raw_grids(ends: Ends) -> Iterator[Head]:
    """YOLOv3, 4, 5 and 7, not decoded: [1, 3 · fields, h, w], [1, h, w, 3 · fields], [1, 3, h, w,
    fields] or [1, h, w, 3, fields]. The shapes do not show which; only YOLOv5's and 7's may end in
    a sigmoid, because the sizes of YOLOv3's and 4's boxes are computed without one."""
    likely = _likely(ends.graph)
    sigmoid = {ends.is_from(t.name, ops.Logistic.kind) for t in ends.outputs}
    for family in _FAMILIES:
        sizes = [ends.image.grid(stride) for stride in family.strides]
        found = [_level(ends, size) for size in sizes]
        levels = [level for level in found if level is not None]
        fields = {level.fields for level in levels}
        fits = len(levels) == len(sizes) == len(ends.outputs) and len(fields) == len(sigmoid) == 1
        if fits and len(set(sizes)) == len(sizes) and not (family.powers and True in sigmoid):
            head = _head(ends, family, levels, done=True in sigmoid)
            yield replace(head, likely=family.name == likely)


def _likely(graph: Graph) -> str:
    """The family whose layers a network has, as far as no other with anchors has such; else empty.
    Only YOLOv5 begins with a window of 6 x 6, or with neighboring pixels that become channels.
    Without residuals are YOLOv7, with SiLU, and the tiny ones, of which YOLOv4's splits channels.
    """
    first = next((node for node in graph.nodes if isinstance(node.op, ops.Conv2D)), None)
    if first is None or not isinstance(first.op, ops.Conv2D):
        return ""
    _, *kernel, channels = graph.tensors[first.inputs[1] or ""].shape
    kinds = {type(node.op) for node in graph.nodes}
    if (kernel, first.op.stride) == ([6, 6], (2, 2)) or channels == _FOCUS:
        return "yolov5"
    if ops.DepthwiseConv2D in kinds or any(_is_residual(graph, node) for node in graph.nodes):
        return ""
    if kernel != [3, 3] or ops.MaxPool2D not in kinds:
        return ""
    splits = kinds & {ops.Split, ops.StridedSlice}
    if first.op.stride == (2, 2):
        return "yolov4-tiny" if splits else "yolov7-tiny"
    if splits:
        return ""
    return "yolov7" if ops.Logistic in kinds else "yolov3-tiny"


def _is_residual(graph: Graph, node: Node) -> bool:
    """Whether it adds what layers gave to what they took."""
    if not isinstance(node.op, ops.Add):
        return False
    given = [graph.tensors[name] for name in node.inputs if name is not None]
    return all(each.data is None and len(each.shape) == 4 for each in given)


@dataclass(frozen=True)
class _Level:
    """The output of a grid: `axes` brings its parts, of shape `parts`, in the order fields, boxes,
    cells."""

    tensor: Tensor
    fields: int
    parts: tuple[int, ...]
    axes: tuple[int, ...]


def _level(ends: Ends, size: tuple[int, int]) -> _Level | None:
    """The output of the grid of `size` rows and columns, with at least one class."""
    cells = size[0] * size[1]
    for tensor in ends.outputs:
        shape = tensor.shape
        if len(shape) == 5 and shape[:4] == (1, _BOXES, *size) and shape[4] > 5:
            fields = shape[4]
            return _Level(tensor, fields, (1, _BOXES, cells, fields), (0, 3, 1, 2))
        if len(shape) == 5 and shape[:4] == (1, *size, _BOXES) and shape[4] > 5:
            return _Level(tensor, shape[4], (1, cells, _BOXES, shape[4]), (0, 3, 2, 1))
        fields, rest = divmod(next((n for n in shape[1:] if n not in size), 0), _BOXES)
        if rest or fields <= 5:
            continue
        if shape == (1, _BOXES * fields, *size):
            return _Level(tensor, fields, (1, _BOXES, fields, cells), (0, 2, 1, 3))
        if shape == (1, *size, _BOXES * fields):
            return _Level(tensor, fields, (1, cells, _BOXES, fields), (0, 3, 2, 1))
    return None


def _head(ends: Ends, family: _Family, levels: list[_Level], done: bool) -> Head:
    """`done`: the outputs already went through a sigmoid."""
    fields = levels[0].fields
    shift, reach, unit, anchors = _constants(ends, family)

    def rows(to: Appender) -> str:
        x = to.add(ops.Concat(2), *(_planes(to, level) for level in levels))
        # One split: most of the time goes into copies of the classes' scores.
        parts = to.add_all(ops.Split(1, (2, 2, 1, fields - 5)), x)
        center, size, sure, classes = (
            part if done or (family.powers and i == _SIZE) else to.add(ops.Logistic(), part)
            for i, part in enumerate(parts)
        )
        if family.powers:
            size = to.add(ops.Mul(), to.add(ops.Exp(), size), to.constant(anchors))
        else:
            size = to.add(ops.Mul(), to.add(ops.Mul(), size, size), to.constant(4 * anchors))
        if np.any(reach != 1):
            center = to.add(ops.Mul(), center, to.constant(reach))
        center = to.add(ops.Add(), center, to.constant(shift - (reach - 1) / 2))
        center = to.add(ops.Mul(), center, to.constant(unit))
        boxes = to.add(ops.Transpose((0, 2, 1)), to.add(ops.Concat(1), center, size))
        return selected(to, boxes, to.add(ops.Mul(), classes, sure), V5_LIMITS)

    what = f"outputs are grids like {family.name}'s, whose published anchors are a proposal"
    return Head(family.name, what, fields - 5, rows, family=family.name.replace("-", ""))


def _planes(to: Appender, level: _Level) -> str:
    """The output as [1, fields, boxes · cells]."""
    parts = to.add(ops.Reshape(level.parts), to.floats(level.tensor.name))
    moved = to.add(ops.Transpose(level.axes), parts)
    _, fields, boxes, cells = to.shape(moved)
    return to.add(ops.Reshape((1, fields, boxes * cells)), moved)


def _constants(ends: Ends, family: _Family) -> tuple[Array, Array, Array, Array]:
    """Cells [1, 2, n], reach and stride [1, 1, n] and anchors [1, 2, n] of all boxes."""
    shifts, reaches, units, sizes = [], [], [], []
    reach = family.reach or (1 if family.powers else 2,) * len(family.strides)
    for stride, anchors, across in zip(family.strides, family.anchors, reach, strict=True):
        cells, sides = grid_of(ends.image, (stride,))
        shifts.append(np.tile(cells, (_BOXES, 1)))
        units.append(np.tile(sides, (_BOXES, 1)))
        reaches.append(np.full_like(units[-1], across, np.float64))
        sizes.append(np.repeat(np.reshape(anchors, (_BOXES, 2)), len(cells), axis=0))
    shift, wide, unit, size = (
        np.concatenate(each).T[None] for each in (shifts, reaches, units, sizes)
    )
    return shift, wide, unit, size
