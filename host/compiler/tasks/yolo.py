"""Heads of YOLO whose outputs are one tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import BGR, CORNER, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import (
    STRETCHED_IMAGENET,
    YOLO_PIXELS,
    Head,
    Limits,
    as_rows,
    grid_of,
    in_pixels,
    selected,
    sizes_of,
    suppressed,
)

STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))
MOST_ROWS = 1000  # of a model that selects its boxes itself
POSE_FIELDS = 4 + 1 + 17 * 3  # a box and the points of a person, which are no classes
X_PIXELS = {"fit": CORNER, "fill": 114, "channels": BGR, "mean": (0.0,), "scale": (1.0,)}
_X_LIMITS = Limits(0.3, 0.45, single=True, across=True)  # of its authors' program for ONNX
_OTHER = "other"
V5_LIMITS = Limits(0.25, 0.45, single=True)  # of the programs of YOLOv5 and YOLOv7
_ANGLES = 180  # scores of angles behind the classes of YOLOv5-OBB
_ANGLES_TOO = "scores of 180 angles may follow those of the classes"
# By the fields of YOLOv5-face's, YOLOv7-face's and YOLOv7-pose's boxes, and of plates.
_POINTS_TOO = {
    fields: f"the fields of a box may be {fields - 5} classes, or {classes} and {points} points"
    for fields, classes, points in ((16, "one", 5), (21, "one", 5), (57, "one", 17),
                                    (14, "one", 4), (15, "two", 4))
}  # fmt: skip
_PLATES = (14, 15)  # of these, the fields of plates
NAS_PIXELS = {**YOLO_PIXELS, "channels": BGR}
_NAS_LIMITS = Limits(0.25, 0.7)  # of its authors' program, and the overlap of DAMO-YOLO's
_DAMO = "output"  # the name of DAMO-YOLO's scores
_WORLD = ("scores", "boxes")
_DAMO_PIXELS = {"fit": CORNER, "fill": 0, "mean": (0.0,), "scale": (1.0,)}
_CORNER_PIXELS: Mapping[str, Mapping[str, Any]] = {
    "DAMO-YOLO": _DAMO_PIXELS, "YOLO-World": YOLO_PIXELS, "YOLO-NAS": NAS_PIXELS,
}  # fmt: skip
_V4_LIMITS = Limits(0.25, 0.45)  # of its program for TensorFlow Lite, which stretches pictures
_V4_PIXELS = {"fit": STRETCH}
_V6_LIMITS = Limits(0.4, 0.45, single=True)  # of its authors' program


def anchor_free(ends: Ends) -> Iterator[Head]:
    """YOLOv8, 9, 11, 12: [1, 4 + classes, boxes] with centers and sizes."""
    output, image = ends.only(3) or _main_branch(ends), ends.image
    if output is None:
        return
    _, fields, boxes = output.shape
    if fields in (0, 1, 2, 3, 4, POSE_FIELDS) or boxes not in box_counts(image, 1):
        return
    if is_rotated(ends, output) or numbers_of_points(ends, output):
        return

    def rows(to: Appender) -> str:
        box, scores = to.add_all(ops.Split(1, (4, fields - 4)), to.floats(output.name))
        box = in_pixels(to, image, to.add(ops.Transpose((0, 2, 1)), box), sizes_of(image))
        return selected(to, box, scores)

    yield Head("yolov8", f"'{output.name}' is like YOLOv8's", fields - 4, rows)


def _main_branch(ends: Ends) -> Tensor | None:
    """The last of two outputs like YOLOv8's: YOLOv9 as it is trained has an auxiliary branch, whose
    boxes come first."""
    shapes = {t.shape for t in ends.outputs}
    parts = {tuple(size for _, size in ends.parts(t.name)) for t in ends.outputs}
    if len(ends.outputs) != 2 or len(shapes) != 1 or len(ends.outputs[0].shape) != 3:
        return None
    return ends.outputs[1] if parts == {(4, ends.outputs[0].shape[1] - 4)} else None


def is_rotated(ends: Ends, output: Tensor) -> bool:
    """Whether the last of the fields is an angle of rotated boxes: it is joined on its own."""
    sizes = [size for _, size in ends.parts(output.name)]
    return len(sizes) > 1 and sizes[-1] == 1 and sizes != [4, 1]


def numbers_of_points(ends: Ends, output: Tensor) -> int:
    """How many numbers of points follow boxes and scores; 0 for none."""
    *before, (last, numbers) = ends.parts(output.name) or (("", 0),)
    if len(before) == 1:  # boxes and scores, which were joined before
        before = [*ends.parts(before[0][0])]
    scores = bool(before) and ends.is_from(before[-1][0], ops.Logistic.kind)
    return numbers if scores and not ends.is_from(last, ops.Logistic.kind) else 0


def chooses_class(ends: Ends, output: Tensor) -> bool:
    """Whether a box of the output ends in its score and its class, which was an integer."""
    parts = ends.parts(output.name)
    return [size for _, size in parts] == [4, 1, 1] and ends.is_from_integers(parts[2][0])


def scores_behind(ends: Ends, output: Tensor) -> int:
    """How many scores from a sigmoid follow the boxes [1, n, 4]; 0 if that is not seen."""
    parts, count = ends.parts(output.name), output.shape[2] - 4
    seen = [size for _, size in parts] == [4, count]
    return count if seen and ends.is_from(parts[1][0], ops.Logistic.kind) else 0


def behind_selected(ends: Ends, output: Tensor) -> int:
    """How many numbers follow box, score and class in the rows of a model that selects; 0 for none,
    or if how they are joined is not seen."""
    sizes = [size for _, size in ends.parts(output.name)]
    seen = sizes[:-1] == [4, 1, 1] and ends.is_from_integers(ends.parts(output.name)[2][0])
    return sizes[-1] if seen else 0


def anchored(ends: Ends) -> Iterator[Head]:
    """YOLOv5 and YOLOv7, decoded: [1, boxes, 5 + classes], three boxes of a cell. Files of older
    exporters also have the tensors of the grids, of five axes."""
    decoded = [t for t in ends.outputs if len(t.shape) == 3]
    if len(decoded) != 1 or any(len(t.shape) not in (3, 5) for t in ends.outputs):
        return
    output, (first, boxes, fields) = decoded[0], decoded[0].shape
    if first != 1 or fields <= 5 or boxes not in box_counts(ends.image, 3):
        return
    behind = behind_boxes(ends, output)
    if behind not in ((), (fields - 4,), (1, fields - 5)):
        return
    doubt = _ANGLES_TOO if fields - 5 > _ANGLES else _POINTS_TOO.get(fields, "")
    doubt = "" if behind and fields in _PLATES else doubt

    def rows(to: Appender) -> str:
        box, scores = _scored(to, to.floats(output.name), fields - 5)
        box = in_pixels(to, ends.image, box, sizes_of(ends.image))
        return selected(to, box, scores, V5_LIMITS)

    what = f"'{output.name}' is like YOLOv5's"
    yield Head("yolov5", what, fields - 5, rows, doubt=doubt)


def yolop(ends: Ends) -> Iterator[Head]:
    """YOLOP: boxes of cars as YOLOv5's, and two maps, where one drives and of lines (Wu et al.,
    2021), which are left out."""
    decoded = [t for t in ends.outputs if len(t.shape) == 3]
    size = (1, 2, ends.image.height, ends.image.width)
    if len(decoded) != 1 or [t.shape for t in ends.outputs].count(size) != len(ends.outputs) - 1:
        return
    output, count = decoded[0], decoded[0].shape[1]
    if len(ends.outputs) != 3 or output.shape[2] != 6 or count not in box_counts(ends.image, 3):
        return

    def rows(to: Appender) -> str:
        box, scores = _scored(to, to.floats(output.name), 1)
        return selected(to, box, scores, V5_LIMITS)

    what = f"'{output.name}' is like YOLOP's, pixels as PyTorch's models take them"
    yield Head("yolop", what, 1, rows, {**STRETCHED_IMAGENET, **YOLO_PIXELS}, ("car",))


def behind_boxes(ends: Ends, output: Tensor) -> tuple[int, ...]:
    """The sizes of what is joined behind the boxes of each grid, which are centers and sizes; empty
    if that is not seen."""
    levels = [ends.parts(name) for name, _ in ends.parts(output.name)]
    found = {tuple(size for _, size in level) for level in levels}
    sizes = found.pop() if len(found) == 1 else ()
    boxes = {4: 1, 2: 2}.get(sizes[0], 0) if sizes else 0
    return sizes[boxes:] if boxes and sum(sizes[:boxes]) == 4 else ()


def corners_and_scores(ends: Ends) -> Iterator[Head]:
    """YOLO-NAS: corners [1, boxes, 4] in pixels, and then scores [1, boxes, classes]. DAMO-YOLO and
    YOLO-World have the scores first, and other pixels; the former's exporter names only them."""
    if len(ends.outputs) != 2:
        return
    is_damo = ends.outputs[0].name == _DAMO
    is_world = tuple(t.name for t in ends.outputs) == _WORLD
    scores, boxes = ends.outputs if is_damo or is_world else reversed(ends.outputs)
    count = _cells(ends.image, STRIDES[0])
    fits = boxes.shape == (1, count, 4) and scores.shape[:2] == (1, count)
    if not fits or len(scores.shape) != 3 or not ends.is_from(scores.name, ops.Logistic.kind):
        return
    if has_sizes(ends, boxes.name):

        def centers(to: Appender) -> str:
            each = to.add(ops.Transpose((0, 2, 1)), to.floats(scores.name))
            return selected(to, to.floats(boxes.name), each)

        what = "outputs are boxes and scores of a YOLO, which are apart"
        yield Head("yolo-apart", what, scores.shape[2], centers)
        return

    def rows(to: Appender) -> str:
        each = to.add(ops.Transpose((0, 2, 1)), to.floats(scores.name))
        return suppressed(to, to.floats(boxes.name), each, _NAS_LIMITS)

    whose = "DAMO-YOLO" if is_damo else "YOLO-World" if is_world else "YOLO-NAS"
    pixels = _CORNER_PIXELS[whose]
    what = f"outputs are corners and scores like {whose}'s"
    yield Head(whose.lower(), what, scores.shape[2], rows, pixels)


def lite_yolov4(ends: Ends) -> Iterator[Head]:
    """YOLOv4 as tensorflow-yolov4-tflite exports it: centers and sizes [1, n, 4] in pixels of three
    boxes in each cell, and scores [1, n, classes], in any order."""
    boxes = [t for t in ends.outputs if len(t.shape) == 3 and t.shape[::2] == (1, 4)]
    if len(ends.outputs) != 2 or len(boxes) != 1:
        return
    (scores,) = (t for t in ends.outputs if t is not boxes[0])
    count = boxes[0].shape[1]
    if scores.shape[:2] != (1, count) or count not in box_counts(ends.image, 3):
        return
    levels = [name for name, size in ends.parts(boxes[0].name) if size != 2] or [boxes[0].name]
    if not all(has_sizes(ends, name) for name in levels):
        return

    def rows(to: Appender) -> str:
        box = in_pixels(to, ends.image, to.floats(boxes[0].name), sizes_of(ends.image))
        each = to.add(ops.Transpose((0, 2, 1)), to.floats(scores.name))
        return selected(to, box, each, _V4_LIMITS)

    what = "outputs are those of YOLOv4 for TensorFlow Lite"
    yield Head("yolov4-lite", what, scores.shape[2], rows, _V4_PIXELS)


def has_sizes(ends: Ends, name: str) -> bool:
    """Whether boxes end in their sizes, which are differences or powers, and not in corners."""
    node = ends.maker(name)
    if node is not None and isinstance(node.op, ops.Mul):
        name = node.inputs[0] or ""  # before they are multiplied by strides
    parts = ends.parts(name)
    if [size for _, size in parts] != [2, 2]:
        return False
    last = ends.maker(parts[1][0])
    while last is not None and isinstance(last.op, ops.Mul):
        last = ends.maker(last.inputs[0] or "")
    return last is not None and isinstance(last.op, ops.Sub | ops.Exp | ops.Pow)


def end_to_end(ends: Ends) -> Iterator[Head]:
    """YOLOv10, YOLO26 and others that select: [1, boxes, 6] of corners, score, class, or of the
    class before the score if only that was an integer."""
    output, image = ends.only(3), ends.image
    if output is None or output.shape[2] != 6 or not 1 < output.shape[1] <= MOST_ROWS:
        return
    if output.shape[1] in box_counts(image, 1) | box_counts(image, 3):
        return

    if scores_behind(ends, output) == 2:
        return
    last = [ends.is_from_integers(name) for name, _ in ends.parts(output.name)[-2:]]

    def rows(to: Appender) -> str:
        corners, score, label = to.add_all(ops.Split(2, (4, 1, 1)), to.floats(output.name))
        if last == [True, False]:
            score, label = label, score
        return as_rows(to, label, score, [in_pixels(to, image, corners, sizes_of(image))])

    yield Head("yolov10", f"'{output.name}' is like YOLOv10's, which selects its boxes", 0, rows)


def one_box_of_a_cell(ends: Ends) -> Iterator[Head]:
    """YOLOX, with boxes decoded or not, and YOLOv6: [1, boxes, 5 + classes]. The shape is the same,
    so how the output is made decides; if that is not known, each is possible."""
    output = ends.only(3)
    strides = [s for s in STRIDES if output and output.shape[1] == _cells(ends.image, s)]
    if output is None or output.shape[2] <= 5 or not strides or chooses_class(ends, output):
        return
    known = _maker(ends, output)
    for head in (_yolox(ends.image, output, strides[0]), _decoded_yolox(output), _yolov6(output)):
        if known in ("", head.name):
            yield head


def _maker(ends: Ends, output: Tensor) -> str:
    """The name of the head that makes an output of YOLOX's shape, or _OTHER; empty if unknown."""
    parts, classes = ends.parts(output.name), output.shape[2] - 5
    sizes = [size for _, size in parts]
    decodes = ends.computes(ops.Exp.kind)
    if sizes == [4, 1, classes]:  # boxes, ones instead of an object score, classes
        ones = ends.graph.tensors[parts[1][0]].data
        return "yolov6" if ones is not None and bool(np.all(ones == 1)) else ""
    if sizes == [2, 2, 1 + classes] and decodes:
        return "yolox-decoded"
    levels = [ends.parts(name) for name, _ in parts]
    grids = [[size for _, size in level] for level in levels]
    if not grids or not all(grids):
        return ""
    if all(grid == [2, 2, 1 + classes] for grid in grids) and decodes:
        return "yolov6"  # its first releases, which decode each grid
    if any(grid != [4, 1, classes] for grid in grids):
        return _OTHER
    certain = (ends.is_from(name, ops.Logistic.kind) for level in levels for name, _ in level[1:])
    return "yolox" if all(certain) and not decodes else ""


def _yolox(image: InputImage, output: Tensor, strides: tuple[int, ...]) -> Head:
    cells, sides = grid_of(image, strides)
    classes = output.shape[2] - 5

    def rows(to: Appender) -> str:
        x = to.floats(output.name)
        shift, size, rest = to.add_all(ops.Split(2, (2, 2, 1 + classes)), x)
        centers = to.add(ops.Add(), shift, to.constant(cells[None]))
        box = to.add(ops.Concat(2), centers, to.add(ops.Exp(), size))
        box = to.add(ops.Mul(), box, to.constant(sides[None]))
        box, scores = _scored(to, to.add(ops.Concat(2), box, rest), classes)
        return selected(to, box, scores, _X_LIMITS)

    what = f"'{output.name}' is like YOLOX's, whose boxes are not decoded"
    return Head("yolox", what, classes, rows, X_PIXELS)


def _decoded_yolox(output: Tensor) -> Head:
    what = f"'{output.name}' is like YOLOX's with decoded boxes"
    rows = partial(_decoded_rows, output=output, limits=_X_LIMITS)
    return Head("yolox-decoded", what, output.shape[2] - 5, rows, X_PIXELS)


def _yolov6(output: Tensor) -> Head:
    what = f"'{output.name}' is like YOLOv6's"
    rows = partial(_decoded_rows, output=output, limits=_V6_LIMITS)
    return Head("yolov6", what, output.shape[2] - 5, rows, YOLO_PIXELS)


def _decoded_rows(to: Appender, output: Tensor, limits: Limits) -> str:
    box, scores = _scored(to, to.floats(output.name), output.shape[2] - 5)
    return selected(to, box, scores, limits)


def _scored(to: Appender, x: str, classes: int) -> tuple[str, str]:
    """Boxes [1, n, 4] and scores [1, c, n] of rows of box, object score and scores of classes."""
    box, sure, each = to.add_all(ops.Split(2, (4, 1, classes)), x)
    return box, to.add(ops.Transpose((0, 2, 1)), to.add(ops.Mul(), each, sure))


def box_counts(image: InputImage, of_a_cell: int) -> set[int]:
    """The numbers of boxes that detectors with so many in a cell have."""
    return {of_a_cell * _cells(image, strides) for strides in STRIDES}


def _cells(image: InputImage, strides: tuple[int, ...]) -> int:
    return sum(map(image.cells, strides))
