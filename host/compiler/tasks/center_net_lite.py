"""CenterNet as TensorFlow's detection library exports it to .tflite: the file scales pixels, and
selects boxes, perhaps with the points of persons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edgekit.device.runtime.agent.task import POINT_FIELDS, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import with_image
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import Head, as_rows, sizes_of

_PIXELS = {"fit": STRETCH, "mean": (0.0,), "scale": (1.0,)}
_WHAT = "outputs are those of TensorFlow's CenterNet"
_BOXES, _POSES = 4, 6  # outputs, without and with points


class _Found(NamedTuple):
    """Boxes [1, n, 4] (top, left, bottom, right), relative to the picture as points are
    [1, n, k, 2]; the others [1, n], and [1, n, k] of points."""

    boxes: Tensor
    labels: Tensor
    scores: Tensor
    points: Tensor | None = None
    certain: Tensor | None = None


def lite_center_net(ends: Ends) -> Iterator[Head]:
    """Boxes, classes from 0, scores and how many they are."""
    found = _found(ends)
    if found is None or found.points is not None:
        return

    def rows(to: Appender) -> str:
        label, score, corners = _columns(to, ends, found)
        return as_rows(to, label, score, [corners])

    yield Head("tensorflow-centernet", _WHAT, 0, rows, _PIXELS, counted=_classes(ends))


def lite_center_poses(ends: Ends) -> Iterator[Head]:
    """The same with the points of each, and their scores."""
    found = _found(ends)
    points, certain = (found.points, found.certain) if found else (None, None)
    if found is None or points is None or certain is None:
        return
    _, count, each, _ = points.shape

    def rows(to: Appender) -> str:
        places = to.add(ops.Gather(3), to.floats(points.name), _flipped(to))
        wide = to.constant(sizes_of(ends.image)[None, ..., :2])
        places = to.add(ops.Mul(), places, wide)
        sure = to.add(ops.Reshape((1, count, each, 1)), to.floats(certain.name))
        joined = to.add(ops.Concat(3), places, sure)
        flat = to.add(ops.Reshape((1, count, POINT_FIELDS * each)), joined)
        return with_image(to, *_columns(to, ends, found), flat)

    labels = ("person",) if _classes(ends) == 1 else ()
    yield Head("tensorflow-centernet", _WHAT, 1, rows, _PIXELS, labels, counted=_classes(ends))


def _found(ends: Ends) -> _Found | None:
    """The outputs, whose names say nothing: classes were integers, boxes are where a map of scores
    is as large as its neighbors."""
    outputs = ends.outputs
    boxes = [t for t in outputs if len(t.shape) == 3 and t.shape[::2] == (1, 4)]
    peaks = ends.computes(ops.MaxPool2D.kind) and ends.computes(ops.TopK.kind)
    if len(outputs) not in (_BOXES, _POSES) or not boxes or not peaks:
        return None
    count = boxes[0].shape[1]
    flat = [t for t in outputs if t.shape == (1, count)]
    integers = [t for t in flat if not t.dtype.is_float or ends.is_from_integers(t.name)]
    counts = [t for t in outputs if t.elements == 1]
    if len(flat) != 2 or len(integers) != 1 or len(counts) != 1:
        return None
    scores = next(t for t in flat if t not in integers)
    if len(outputs) == _BOXES:
        return _Found(boxes[0], integers[0], scores)
    rest = [t for t in outputs if t not in (boxes[0], *flat, *counts)]
    points, *others = sorted(rest, key=lambda t: -len(t.shape))
    fits = len(points.shape) == 4 and points.shape[:2] == (1, count) and points.shape[3] == 2
    if not fits or [t.shape for t in others] != [points.shape[:3]]:
        return None
    return _Found(boxes[0], integers[0], scores, points, others[0])


def _columns(to: Appender, ends: Ends, found: _Found) -> tuple[str, str, str]:
    """Class and score [1, n, 1], and corners in pixels."""
    count = found.labels.elements
    label, score = (
        to.add(ops.Reshape((1, count, 1)), to.floats(t.name)) for t in (found.labels, found.scores)
    )
    wide = to.add(
        ops.Mul(), to.floats(found.boxes.name), to.constant(sizes_of(ends.image)[..., ::-1])
    )
    top, left, bottom, right = to.add_all(ops.Split(2, (1, 1, 1, 1)), wide)
    return label, score, to.add(ops.Concat(2), left, top, right, bottom)


def _flipped(to: Appender) -> str:
    return to.constant(np.array([1, 0]), DType.I64)


def _classes(ends: Ends) -> int:
    """How many maps of scores have peaks; 0 if that is not seen."""
    pooled = {
        ends.graph.tensors[node.outputs[0]].shape[3]
        for node in ends.graph.nodes
        if isinstance(node.op, ops.MaxPool2D)
        and node.inputs[0] is not None
        and ends.is_from(node.inputs[0], ops.Logistic.kind)
    }
    return pooled.pop() if len(pooled) == 1 else 0
