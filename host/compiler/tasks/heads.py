"""Detectors' outputs as rows of boxes: decoding and non-maximum suppression as operators.

A head is recognized by the shapes of the outputs. Rows are those of `DetectionOutput`: image,
class, score and corners in pixels of the model's input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import BGR, FIELDS, LETTERBOX, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, Graph, Tensor
from edgekit.host.compiler.tasks.append import Appender

_KEEP, _TOP = 100, 300  # detections of a picture; candidates of each class
_LEAST, _OVERLAP = 0.25, 0.7  # Ultralytics' defaults
_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))
_POSE_FIELDS = 4 + 1 + 17 * 3  # a box and the points of a person, which are no classes
_MOST_ROWS = 1000  # of a model that selects its boxes itself
_FACE_LEAST, _FACE_OVERLAP = 0.5, 0.3  # MediaPipe's defaults
# How pictures become inputs: as the authors of each family do.
_YOLO_PIXELS = {"fit": LETTERBOX, "fill": 114}
_FASTEST_PIXELS = {"fit": STRETCH, "channels": BGR}
_FASTEST_STRIDE, _FASTEST_LIMITS = 16, (0.65, 0.45)  # of its authors' program
_BLAZE_PIXELS = {"fit": LETTERBOX, "fill": 0, "mean": (127.5,), "scale": (127.5,)}
_SSD_PIXELS = {"fit": STRETCH}
_ULTRA_PIXELS = {"fit": STRETCH, "mean": (127.0,), "scale": (128.0,)}
# Cells along an edge and boxes in each, by the side of the picture.
_BLAZE_GRIDS = {128: ((16, 2), (8, 6)), 256: ((16, 2), (8, 6)), 192: ((48, 1),)}
_ULTRA_SIDES = {8: (10, 16, 24), 16: (32, 48), 32: (64, 96), 64: (128, 192, 256)}  # by stride


@dataclass(frozen=True)
class Image:
    """The model's only input: its name, and its extents in pixels. `relative`: the model gives
    boxes relative to them, as Ultralytics' .tflite files do. `decodes`: it computes sizes of boxes
    as powers."""

    name: str
    height: int
    width: int
    relative: bool
    decodes: bool

    def cells(self, stride: int) -> int:
        """The number of cells of a grid, the last ones possibly cut."""
        return math.ceil(self.height / stride) * math.ceil(self.width / stride)


@dataclass(frozen=True)
class Head:
    """A recognized head. `rows` appends its decoder and returns the tensor of rows; `classes` is 0
    if unknown. `pixels` are fields of the TaskSpec: how the picture becomes the input."""

    what: str
    classes: int
    rows: Callable[[Appender], str]
    pixels: Mapping[str, Any] = field(default_factory=lambda: _YOLO_PIXELS)
    labels: tuple[str, ...] = ()


def image_of(graph: Graph, relative: bool) -> Image | None:
    """The input of a model that takes one picture; None for others."""
    if len(graph.inputs) != 1:
        return None
    tensor = graph.tensors[graph.inputs[0]]
    if len(tensor.shape) != 4 or tensor.shape[0] != 1:
        return None
    _, *extents = tensor.shape
    known = relative, any(node.op.kind == ops.Exp.kind for node in graph.nodes)
    if extents[2] in (1, 3) and min(extents[:2]) > 3:
        return Image(tensor.name, extents[0], extents[1], *known)
    if extents[0] in (1, 3) and min(extents[1:]) > 3:
        return Image(tensor.name, extents[1], extents[2], *known)
    return None


def selected_head(graph: Graph, image: Image, ends: Sequence[str]) -> Head | None:
    """The head of a model that ends in TFLite_Detection_PostProcess, whose results are `ends`:
    boxes (top, left, bottom, right relative to the picture), classes, scores, count."""
    if len(ends) != 4 or not set(ends) <= set(graph.outputs):
        return None
    boxes, classes, scores, _ = ends
    count = math.prod(graph.tensors[scores].shape)
    if math.prod(graph.tensors[boxes].shape) != 4 * count:
        return None

    def rows(to: Appender) -> str:
        values = [to.floats(name) for name in (boxes, classes, scores)]
        wide, label, score = (
            to.add(ops.Reshape((1, count, size)), name)
            for name, size in zip(values, (4, 1, 1), strict=True)
        )
        wide = to.add(ops.Mul(), wide, to.constant(_sizes(image)[..., ::-1]))
        top, left, bottom, right = to.add_all(ops.Split(2, (1, 1, 1, 1)), wide)
        first = to.constant(np.zeros((1, count, 1)))
        made = to.add(ops.Concat(2), first, label, score, left, top, right, bottom)
        return to.add(ops.Reshape((1, 1, count, FIELDS)), made)

    return Head("it ends in TFLite_Detection_PostProcess", 0, rows, _SSD_PIXELS)


def find_head(graph: Graph, image: Image) -> Head | None:
    """The head of a detector; None if the outputs are of no known one."""
    outputs = [graph.tensors[name] for name in graph.outputs]
    for recognize in _RECOGNIZERS:
        found = recognize(outputs, image)
        if found is not None:
            return found
    return None


def _anchor_free(outputs: list[Tensor], image: Image) -> Head | None:
    """YOLOv8, 9, 11, 12: [1, 4 + classes, boxes] with centers and sizes."""
    if len(outputs) != 1 or len(outputs[0].shape) != 3 or outputs[0].shape[0] != 1:
        return None
    _, fields, boxes = outputs[0].shape
    if fields in (0, 1, 2, 3, 4, _POSE_FIELDS) or boxes not in _box_counts(image, 1):
        return None

    def rows(to: Appender) -> str:
        x = to.floats(outputs[0].name)
        box, scores = to.add_all(ops.Split(1, (4, fields - 4)), x)
        return _selected(to, to.add(ops.Transpose((0, 2, 1)), box), scores, _unit(image))

    return Head(f"'{outputs[0].name}' is like YOLOv8's", fields - 4, rows)


def _anchored(outputs: list[Tensor], image: Image) -> Head | None:
    """YOLOv5 and YOLOv7, decoded: [1, boxes, 5 + classes], three boxes of a cell."""
    if len(outputs) != 1 or len(outputs[0].shape) != 3 or outputs[0].shape[0] != 1:
        return None
    _, boxes, fields = outputs[0].shape
    if fields <= 5 or boxes not in _box_counts(image, 3):
        return None

    def rows(to: Appender) -> str:
        x = to.floats(outputs[0].name)
        box, object_score, classes = to.add_all(ops.Split(2, (4, 1, fields - 5)), x)
        scores = to.add(ops.Mul(), classes, object_score)
        return _selected(to, box, to.add(ops.Transpose((0, 2, 1)), scores), _unit(image))

    return Head(f"'{outputs[0].name}' is like YOLOv5's", fields - 5, rows)


def _end_to_end(outputs: list[Tensor], image: Image) -> Head | None:
    """YOLOv10, YOLO26 and others that select: [1, boxes, 6] of corners, score, class."""
    if len(outputs) != 1 or outputs[0].shape[::2] != (1, 6) or len(outputs[0].shape) != 3:
        return None
    boxes = outputs[0].shape[1]
    if not 1 < boxes <= _MOST_ROWS or boxes in _box_counts(image, 1):
        return None

    def rows(to: Appender) -> str:
        x = to.floats(outputs[0].name)
        corners, score, label = to.add_all(ops.Split(2, (4, 1, 1)), x)
        if image.relative:
            corners = to.add(ops.Mul(), corners, to.constant(_sizes(image)))
        first = to.constant(np.zeros((1, boxes, 1)))
        made = to.add(ops.Concat(2), first, label, score, corners)
        return to.add(ops.Reshape((1, 1, boxes, FIELDS)), made)

    return Head(f"'{outputs[0].name}' is like YOLOv10's, which selects its boxes", 0, rows)


def _fastest_det(outputs: list[Tensor], image: Image) -> Head | None:
    """FastestDet: [1, 5 + classes, rows, columns] of one grid with object, box and class scores."""
    down, across = image.height // _FASTEST_STRIDE, image.width // _FASTEST_STRIDE
    if len(outputs) != 1 or len(outputs[0].shape) != 4 or outputs[0].shape[2:] != (down, across):
        return None
    fields = outputs[0].shape[1]
    if outputs[0].shape[0] != 1 or fields <= 5 or down * across < 2:
        return None
    grid = np.stack(np.meshgrid(np.arange(across), np.arange(down)), -1).reshape(1, -1, 2)

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, fields, down * across)), to.floats(outputs[0].name))
        sure, box, classes = to.add_all(ops.Split(1, (1, 4, fields - 5)), x)
        shift, size = to.add_all(ops.Split(2, (2, 2)), to.add(ops.Transpose((0, 2, 1)), box))
        cells = to.add(ops.Add(), to.add(ops.Tanh(), shift), to.constant(grid))
        centers = to.add(ops.Mul(), cells, to.constant(np.full((1, 1, 2), _FASTEST_STRIDE)))
        extents = to.constant(np.array([[[image.width, image.height]]]))
        box = to.add(
            ops.Concat(2), centers, to.add(ops.Mul(), to.add(ops.Logistic(), size), extents)
        )
        sure = to.add(ops.Pow(), sure, to.constant(np.full((1, 1, 1), 0.6)))
        classes = to.add(ops.Pow(), classes, to.constant(np.full((1, 1, 1), 0.4)))
        return _selected(to, box, to.add(ops.Mul(), classes, sure), None, _FASTEST_LIMITS)

    return Head(f"'{outputs[0].name}' is like FastestDet's", fields - 5, rows, _FASTEST_PIXELS)


def _blaze_face(outputs: list[Tensor], image: Image) -> Head | None:
    """MediaPipe's face detectors: boxes and 6 points in pixels from the centers of cells."""
    ends = {t.shape[2]: t for t in outputs if len(t.shape) == 3}
    grids = _BLAZE_GRIDS.get(image.width) if image.height == image.width else None
    if len(outputs) != 2 or set(ends) != {16, 1} or grids is None:
        return None
    boxes, scores = ends[16], ends[1]
    count = sum(cells * cells * each for cells, each in grids)
    if {boxes.shape[:2], scores.shape[:2]} != {(1, count)}:
        return None
    centers = np.array(list(_centers(grids))) * image.width

    def rows(to: Appender) -> str:
        box, _ = to.add_all(ops.Split(2, (4, 12)), to.floats(boxes.name))
        shift = np.concatenate([centers, np.zeros_like(centers)], 1)
        box = to.add(ops.Add(), box, to.constant(shift[None]))
        score = to.add(ops.Logistic(), to.floats(scores.name))
        score = to.add(ops.Transpose((0, 2, 1)), score)
        return _selected(to, box, score, None, (_FACE_LEAST, _FACE_OVERLAP))

    return Head(
        "outputs are those of MediaPipe's face detectors", 1, rows, _BLAZE_PIXELS, ("face",)
    )


def _ultra_face(outputs: list[Tensor], image: Image) -> Head | None:
    """Ultra-Light-Fast: boxes relative to priors, and scores of background and face."""
    by_name = {t.name: t for t in outputs}
    priors = np.array(list(_priors(image)))
    shapes = {"boxes": (1, len(priors), 4), "scores": (1, len(priors), 2)}
    if {name: t.shape for name, t in by_name.items()} != shapes or image.decodes:
        return None

    def rows(to: Appender) -> str:
        shift, size = to.add_all(ops.Split(2, (2, 2)), to.floats("boxes"))
        centers, extents = priors[None, :, :2], priors[None, :, 2:]
        shift = to.add(ops.Mul(), shift, to.constant(0.1 * extents))
        size = to.add(ops.Exp(), to.add(ops.Mul(), size, to.constant(np.full((1, 1, 1), 0.2))))
        box = to.add(
            ops.Concat(2),
            to.add(ops.Add(), shift, to.constant(centers)),
            to.add(ops.Mul(), size, to.constant(extents)),
        )
        _, face = to.add_all(ops.Split(2, (1, 1)), to.floats("scores"))
        face = to.add(ops.Transpose((0, 2, 1)), face)
        return _selected(to, box, face, None, (_FACE_LEAST, _FACE_OVERLAP))

    return Head("outputs are UltraFace's", 1, rows, _ULTRA_PIXELS, ("face",))


def _decoded_ultra_face(outputs: list[Tensor], image: Image) -> Head | None:
    """Ultra-Light-Fast whose file decodes the boxes: corners relative to the picture."""
    by_name = {t.name: t for t in outputs}
    count = len(list(_priors(image)))
    shapes = {"boxes": (1, count, 4), "scores": (1, count, 2)}
    if {name: t.shape for name, t in by_name.items()} != shapes or not image.decodes:
        return None

    def rows(to: Appender) -> str:
        corners = to.add(ops.Mul(), to.floats("boxes"), to.constant(_sizes(image)))
        _, face = to.add_all(ops.Split(2, (1, 1)), to.floats("scores"))
        face = to.add(ops.Transpose((0, 2, 1)), face)
        return _suppressed(to, corners, face, (_FACE_LEAST, _FACE_OVERLAP))

    return Head("outputs are UltraFace's", 1, rows, _ULTRA_PIXELS, ("face",))


def _priors(image: Image) -> Iterator[tuple[float, float, float, float]]:
    """UltraFace's boxes: center and size in pixels."""
    for stride, sides in _ULTRA_SIDES.items():
        down, across = math.ceil(image.height / stride), math.ceil(image.width / stride)
        for cell in range(down * across):
            for side in sides:
                x, y = cell % across + 0.5, cell // across + 0.5
                yield x * stride, y * stride, side, side


def _selected(
    to: Appender,
    boxes: str,
    scores: str,
    unit: Array | None,
    limits: tuple[float, float] = (_LEAST, _OVERLAP),
) -> str:
    """Rows of boxes [1, n, 4], given by centers and sizes in `unit`, and scores [1, c, n]."""
    if unit is not None:
        boxes = to.add(ops.Mul(), boxes, to.constant(unit))
    centers, sizes = to.add_all(ops.Split(2, (2, 2)), boxes)
    half = to.add(ops.Mul(), sizes, to.constant(np.full((1, 1, 1), 0.5)))
    low, high = to.add(ops.Sub(), centers, half), to.add(ops.Add(), centers, half)
    return _suppressed(to, to.add(ops.Concat(2), low, high), scores, limits)


def _suppressed(to: Appender, corners: str, scores: str, limits: tuple[float, float]) -> str:
    least, overlap = limits
    boxes = to.shape(corners)[1]
    op = ops.DetectionOutput(_KEEP, min(_TOP, boxes), least, overlap)
    return to.add(op, to.add(ops.Reshape((1, boxes, 1, 4)), corners), scores)


def _box_counts(image: Image, of_a_cell: int) -> set[int]:
    return {of_a_cell * sum(map(image.cells, strides)) for strides in _STRIDES}


def _unit(image: Image) -> Array | None:
    return _sizes(image) if image.relative else None


def _sizes(image: Image) -> Array:
    return np.array([[[image.width, image.height] * 2]], np.float32)


def _centers(grids: tuple[tuple[int, int], ...]) -> Iterator[tuple[float, float]]:
    """The centers of all boxes, relative to the picture: cells row by row, then their boxes."""
    for cells, boxes in grids:
        for cell in range(cells * cells):
            for _ in range(boxes):
                yield (cell % cells + 0.5) / cells, (cell // cells + 0.5) / cells


_RECOGNIZERS = (
    _anchor_free,
    _anchored,
    _end_to_end,
    _fastest_det,
    _blaze_face,
    _ultra_face,
    _decoded_ultra_face,
)
