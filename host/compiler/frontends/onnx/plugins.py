"""Import of TensorRT's plugins that exporters of detectors put into files."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_MOST = 5000  # candidates of a picture, as in the plugin
_FIELDS = (1, 1, 1, 4)  # image, class, score, corners of a row


def efficient_nms(call: OnnxCall) -> list[Tensor]:
    """EfficientNMS_TRT: of boxes [b, n, 4] and scores [b, n, classes], how many were found s32
    [b, 1], and their corners [b, k, 4], scores [b, k] and classes s32 [b, k], best first, with
    zeros behind them. Boxes may also be one for each class, [b, n, classes, 4]."""
    if call.maybe(2) is not None:
        raise ShapeError("expected boxes and scores, found anchors, too")
    boxes, scores = call.x(0), call.x(1)
    need_rank(scores, 3)
    b, n, classes = scores.shape
    each = boxes.shape[2] if len(boxes.shape) == 4 else 1
    if boxes.shape not in ((b, n, 4), (b, n, 1, 4), (b, n, classes, 4)):
        raise ShapeError(
            f"expected boxes [{b}, {n}, 4] for scores {list(scores.shape)}, found "
            f"{list(boxes.shape)}"
        )
    boxes = call.reshape(boxes, (b, n, each, 4))
    if call.integer("box_coding", 0):
        center, size = call.split(boxes, 3, (2, 2))
        half = call.emit(ops.Mul(), size, call.scalar(0.5, size))
        ends = (call.emit(op(), center, half) for op in (ops.Sub, ops.Add))
        boxes = call.emit(ops.Concat(3), *ends)
    if call.integer("score_activation", 0):
        scores = call.emit(ops.Logistic(), scores)
    keep = call.integer("max_output_boxes", 100)
    alone = bool(call.integer("class_agnostic", 0)) and each == 1
    op = ops.DetectionOutput(
        keep,
        min(_MOST, n),
        call.number("score_threshold", 0.25),
        call.number("iou_threshold", 0.5),
        call.integer("background_class", -1),
        single=alone,
        across=alone,
    )
    rows = call.reshape(call.emit(op, boxes, call.transpose(scores, (0, 2, 1))), (b, keep, 7))
    return _best_first(call, rows, b, keep)


def _best_first(call: OnnxCall, rows: Tensor, b: int, keep: int) -> list[Tensor]:
    """The results, from rows [b, keep, 7] that are sorted by class."""
    _, labels, scores, corners = call.split(rows, 2, _FIELDS)
    flat = call.reshape(scores, (b, keep))
    _, order = call.builder.emit_all(ops.TopK(keep, index=DType.I32), [flat])
    base = call.constant(keep * np.arange(b, dtype=np.int32)[:, None, None])
    places = call.emit(ops.Add(), call.reshape(order, (b, 1, keep)), base)
    whole = call.emit(ops.Concat(2), labels, scores, corners)
    taken = call.emit(
        ops.Gather(0), call.reshape(whole, (b * keep, 6)), call.reshape(places, (b * keep,))
    )
    taken = call.reshape(taken, (b, keep, 6))
    labels, scores, corners = call.split(taken, 2, (1, 1, 4))
    found = call.emit(ops.LessOrEqual(), call.scalar(0, labels), labels)
    zero = call.scalar(0, labels)
    corners, scores, labels = (
        call.emit(ops.Where(), found, part, zero) for part in (corners, scores, labels)
    )
    count = call.emit(ops.ReduceSum((1,)), call.convert(found, DType.I32))
    return [
        call.reshape(count, (b, 1)),
        corners,
        call.reshape(scores, (b, keep)),
        call.reshape(call.convert(labels, DType.I32), (b, keep)),
    ]
