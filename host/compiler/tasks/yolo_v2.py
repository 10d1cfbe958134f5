"""The head of YOLOv2, whose only output is a grid with five boxes in each cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import BGR, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import YOLO_PIXELS, Head, Limits, grid_of, selected

_STRIDE, _BOXES = 32, 5
_LIMITS = Limits(0.3, 0.45)
_BYTES: dict[str, Any] = {"fit": STRETCH, "channels": BGR, "mean": (0.0,), "scale": (1.0,)}
_MOST_TINY = 12  # convolutions of Tiny YOLOv2, which has 9; the other has 23
# Widths and heights of boxes in cells, of Darknet's files: of Pascal VOC, tiny and not, and COCO.
_TINY = (1.08, 1.19, 3.42, 4.41, 6.63, 11.38, 9.42, 5.11, 16.62, 10.52)
_VOC = (1.3221, 1.73145, 3.19275, 4.00944, 5.05587, 8.09892, 9.47112, 4.84053, 11.2364, 10.0071)
_COCO = (0.57273, 0.677385, 1.87446, 2.06253, 3.33843, 5.47434, 7.88282, 3.52778, 9.77052, 9.16828)
_CUSTOM_VISION = "model_outputs0"  # the name of Custom Vision's output, with COCO's boxes
_LABELS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa",
    "train", "tv monitor",
)  # fmt: skip


def yolo_v2(ends: Ends) -> Iterator[Head]:
    """[1, 5 · (5 + classes), rows, columns] for the classes of Pascal VOC or COCO, or any of Custom
    Vision."""
    output, image = ends.only(4), ends.image
    if output is None or output.shape[2:] != image.grid(_STRIDE):
        return
    fields, rest = divmod(output.shape[1], _BOXES)
    classes, cells = fields - 5, image.cells(_STRIDE)
    is_custom = output.name == _CUSTOM_VISION and classes > 0
    if rest or not (is_custom or classes in (len(_LABELS), len(COCO))):
        return
    convolutions = sum(isinstance(node.op, ops.Conv2D) for node in ends.graph.nodes)
    of_voc = _TINY if convolutions <= _MOST_TINY else _VOC
    anchors = np.reshape(_COCO if is_custom or classes == len(COCO) else of_voc, (_BOXES, 2))
    places, _ = grid_of(image, (_STRIDE,))

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((_BOXES, fields, cells)), to.floats(output.name))
        x = to.add(ops.Reshape((1, _BOXES * cells, fields)), to.add(ops.Transpose((0, 2, 1)), x))
        shift, size, sure, each = to.add_all(ops.Split(2, (2, 2, 1, classes)), x)
        centers = to.add(ops.Logistic(), shift)
        centers = to.add(ops.Add(), centers, to.constant(np.tile(places, (_BOXES, 1))[None]))
        extents = to.constant(np.repeat(anchors, cells, axis=0)[None])
        extents = to.add(ops.Mul(), to.add(ops.Exp(), size), extents)
        box = to.add(ops.Concat(2), centers, extents)
        box = to.add(ops.Mul(), box, to.constant(np.full((1, 1, 1), _STRIDE)))
        scores = to.add(ops.Mul(), to.add(ops.Softmax(), each), to.add(ops.Logistic(), sure))
        return selected(to, box, to.add(ops.Transpose((0, 2, 1)), scores), _LIMITS)

    what = f"'{output.name}' is like YOLOv2's, with the boxes of Darknet's files"
    known = _LABELS if classes == len(_LABELS) and not is_custom else ()
    pixels = _BYTES if is_custom else YOLO_PIXELS
    yield Head("yolov2", what, classes, rows, pixels, known)
