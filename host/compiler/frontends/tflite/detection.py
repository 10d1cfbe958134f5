"""Import of TensorFlow Lite's box selection operators, and of Coral's pose detection."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_LIMIT = 1 << 16  # detections
_MOST = 1 << 10  # poses, and pixels per cell
_ROUNDING = 1e-6  # keeps the log odds of 0 finite


@dataclass(frozen=True)
class _Options:
    """The options of TFLite_Detection_PostProcess."""

    detections: int  # per image
    per_box: int  # classes per box, unless `by_class`
    per_class: int  # detections per class, if `by_class`
    by_class: bool
    classes: int
    least: float
    overlap: float
    scales: Array  # for y, x, height, width


def detections(call: TfliteCall) -> list[Tensor]:
    """[boxes, classes, scores, count], all f32: decodes boxes relative to anchors and applies
    non-maximum suppression."""
    offsets, scores, anchors = (_to_float(call, call.tensor(i, "operand")) for i in range(3))
    o = _read_options(call)
    count = offsets.shape[1] if len(offsets.shape) == 3 else 0
    background = scores.shape[-1] - o.classes
    if (
        offsets.shape[:1] != (1,)
        or offsets.shape[2:] != (4,)
        or scores.shape[:2] != (1, count)
        or background not in (0, 1)
        or anchors.shape != (count, 4)
    ):
        raise ShapeError(
            f"expected boxes [1, n, 4], scores [1, n, classes] and anchors [n, 4], found "
            f"{list(offsets.shape)}, {list(scores.shape)} and {list(anchors.shape)}"
        )
    boxes = _decode_boxes(call, offsets, anchors, o.scales)
    extent = (1, count, o.classes)
    begin = (0, 0, background)
    if background:
        op = ops.StridedSlice(begin, (1, 1, 1), extent, extent)
        scores = call.emit(op, scores)
    scores = call.reshape(scores, (count, o.classes))
    return _by_class(call, boxes, scores, o) if o.by_class else _of_all(call, boxes, scores, o)


def _read_options(call: TfliteCall) -> _Options:
    sizes = [call.custom_number(n, d) for n, d in (
        ("max_detections", None), ("max_classes_per_detection", None), ("num_classes", None),
        ("detections_per_class", 100),
    )]  # fmt: skip
    if not all(1 <= s <= _LIMIT for s in sizes):
        raise ShapeError(f"expected options from 1 to {_LIMIT}, found {sizes}")
    scales = np.array([call.custom_number(f"{s}_scale") for s in "yxhw"], np.float32)
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise ShapeError(f"expected positive scales, found {scales.tolist()}")
    overlap = call.custom_number("nms_iou_threshold")
    if not 0 < overlap <= 1:
        raise ShapeError(f"expected an nms_iou_threshold from 0 to 1, found {overlap}")
    detections, per_box, classes, per_class = (int(s) for s in sizes)
    return _Options(
        detections,
        min(per_box, classes),
        min(per_class, detections),
        bool(call.custom_map().get("use_regular_nms", False)),
        classes,
        call.custom_number("nms_score_threshold"),
        overlap,
        scales,
    )


def _to_float(call: TfliteCall, x: Tensor) -> Tensor:
    return x if x.dtype is DType.F32 else call.emit(ops.Cast(), x)


def _decode_boxes(call: TfliteCall, offsets: Tensor, anchors: Tensor, scales: Array) -> Tensor:
    """Decodes (y, x, height, width) relative to anchors into corners [1, n, 4]."""
    moved = call.emit(ops.Div(), offsets, call.constant(scales))
    half = ops.Split(2, (2, 2))
    shift, growth = call.builder.emit_all(half, [moved])
    center, size = call.builder.emit_all(half, [call.reshape(anchors, offsets.shape)])
    center = call.emit(ops.Add(), call.emit(ops.Mul(), shift, size), center)
    reach = call.emit(ops.Mul(), call.scalar(0.5, size), call.emit(ops.Exp(), growth))
    reach = call.emit(ops.Mul(), reach, size)
    low, high = call.emit(ops.Sub(), center, reach), call.emit(ops.Add(), center, reach)
    return call.emit(ops.Concat(2), low, high)


def _of_all(call: TfliteCall, boxes: Tensor, scores: Tensor, o: _Options) -> list[Tensor]:
    """Suppresses boxes by their best class; each kept box reports its `per_box` best classes."""
    count = boxes.shape[1]
    best, classes = call.builder.emit_all(ops.TopK(o.per_box, index=DType.I32), [scores])
    first = ops.StridedSlice((0, 0), (1, 1), (count, 1), (1, 1, count))
    ranked, order = _sort_descending(call, call.emit(first, best))
    op = ops.SelectBoxes(min(o.detections, count), o.overlap, o.least)
    chosen = call.emit(op, boxes, order, ranked)
    size = chosen.shape[2]
    chosen = call.reshape(chosen, (size,))
    found = call.emit(ops.LessOrEqual(), call.scalar(0, chosen), chosen)
    corners, numbers, values = (
        call.emit(ops.Gather(0), t, chosen)
        for t in (call.reshape(boxes, (count, 4)), call.convert(classes, DType.F32), best)
    )
    corners = call.reshape(corners, (size, 1, 4))
    corners = call.emit(ops.BroadcastTo((size, o.per_box, 4)), corners)
    parts = [_pad_selected(call, found, t, o.detections) for t in (corners, numbers, values)]
    rows = o.detections * o.per_box
    corners = call.reshape(parts[0], (1, rows, 4))
    return [corners, *(call.reshape(t, (1, rows)) for t in parts[1:]), _count_selected(call, found)]


def _by_class(call: TfliteCall, boxes: Tensor, scores: Tensor, o: _Options) -> list[Tensor]:
    """Suppresses boxes within each class and reports the best over all classes."""
    count = boxes.shape[1]
    columns = call.reshape(call.transpose(scores, (1, 0)), (1, o.classes, count))
    ranked, order = _sort_descending(call, columns)
    limit = min(o.per_class, count)
    chosen = call.emit(ops.SelectBoxes(limit, o.overlap, o.least), boxes, order, ranked)
    there = call.emit(ops.LessOrEqual(), call.scalar(0, chosen), chosen)
    starts = np.arange(o.classes, dtype=np.int32).reshape(1, o.classes, 1) * count
    at = call.emit(ops.Add(), chosen, call.constant(starts))
    kept = call.emit(ops.Gather(0), call.reshape(columns, (o.classes * count,)), at)
    kept = call.emit(ops.Where(), there, kept, call.scalar(-math.inf, kept))
    flat = call.reshape(kept, (o.classes * limit,))
    size = min(o.detections, flat.elements)
    best, places = call.builder.emit_all(ops.TopK(size, index=DType.I32), [flat])
    numbers = call.emit(ops.Gather(0), call.reshape(at, (flat.elements,)), places)
    found = call.emit(ops.Less(), call.scalar(-math.inf, best), best)
    each = call.scalar(count, numbers)
    classes = call.convert(call.emit(ops.Div(), numbers, each), DType.F32)
    picked = call.emit(ops.Modulo(), numbers, each)
    corners = call.emit(ops.Gather(0), call.reshape(boxes, (count, 4)), picked)
    parts = [_pad_selected(call, found, t, o.detections) for t in (corners, classes, best)]
    return [*(call.reshape(t, (1, *t.shape)) for t in parts), _count_selected(call, found)]


def _sort_descending(call: TfliteCall, scores: Tensor) -> tuple[Tensor, Tensor]:
    values, order = call.builder.emit_all(ops.TopK(scores.shape[-1], index=DType.I32), [scores])
    return values, order


def _pad_selected(call: TfliteCall, found: Tensor, x: Tensor, rows: int) -> Tensor:
    """The selected rows of x, zero-padded to `rows`."""
    mask = call.reshape(found, (*found.shape, *(1,) * (len(x.shape) - 1)))
    x = call.emit(ops.Where(), mask, x, call.scalar(0, x))
    missing = rows - x.shape[0]
    if not missing:
        return x
    rest = (0,) * (len(x.shape) - 1)
    return call.emit(ops.Pad((0, *rest), (missing, *rest)), x)


def _count_selected(call: TfliteCall, found: Tensor) -> Tensor:
    return call.emit(ops.ReduceSum((0,), True), call.convert(found, DType.F32))


def non_max_suppression_v4(call: TfliteCall) -> list[Tensor]:
    """[selected boxes, count], zero-padded."""
    chosen, _, count = _non_max_suppression(call)
    return [chosen, count]


def non_max_suppression_v5(call: TfliteCall) -> list[Tensor]:
    """[selected boxes, their scores, count], zero-padded; soft suppression is not supported."""
    if float(call.value(5, "sigma").reshape(-1)[0]) != 0.0:
        raise ShapeError("expected a sigma of 0, found soft suppression")
    return list(_non_max_suppression(call))


def _non_max_suppression(call: TfliteCall) -> tuple[Tensor, Tensor, Tensor]:
    """Non-maximum suppression of boxes [n, 4] (corners in any order) with scores [n]."""
    boxes, scores = call.tensor(0, "boxes"), call.tensor(1, "scores")
    limit = call.integer(2, "number of boxes")
    overlap, least = (float(call.value(i, "threshold").reshape(-1)[0]) for i in (3, 4))
    count = boxes.shape[0] if boxes.shape else 0
    if boxes.shape[1:] != (4,) or scores.shape != (count,) or not 1 <= limit <= _LIMIT:
        raise ShapeError(
            f"expected boxes [n, 4] and scores [n], found {list(boxes.shape)} and "
            f"{list(scores.shape)}"
        )
    pair = call.builder.emit_all(ops.Split(1, (2, 2)), [boxes])
    corners = [call.emit(op, *pair) for op in (ops.Minimum(), ops.Maximum())]
    boxes = call.reshape(call.emit(ops.Concat(1), *corners), (1, count, 4))
    ranked, order = _sort_descending(call, call.reshape(scores, (1, 1, count)))
    size = min(limit, count)
    chosen = call.emit(ops.SelectBoxes(size, overlap, least, above=True), boxes, order, ranked)
    chosen = call.reshape(chosen, (size,))
    found = call.emit(ops.LessOrEqual(), call.scalar(0, chosen), chosen)
    kept = call.emit(ops.Gather(0), scores, chosen)
    total = call.emit(ops.ReduceSum((0,)), call.convert(found, DType.I32))
    return _pad_selected(call, found, chosen, limit), _pad_selected(call, found, kept, limit), total


def poses(call: TfliteCall) -> list[Tensor]:
    """Heatmaps, short and mid offsets → keypoints, keypoint scores, pose scores, pose count; all
    f32. Quantized inputs are dequantized."""
    if len(call.tensors) != 3:
        raise ShapeError(
            f"expected heatmaps, short and mid offsets, found {len(call.tensors)} inputs; "
            "masks from long offsets are not supported"
        )
    maps = [call.tensor(i, name) for i, name in enumerate(("heatmaps", "short", "mid offsets"))]
    maps = [x if x.dtype is DType.F32 else call.emit(ops.Cast(), x) for x in maps]
    stride, least = call.custom_whole("stride", 1, _MOST), call.custom_number("score_threshold")
    radius = call.custom_number("nms_radius")
    if not (least >= 0 and least + _ROUNDING < 1 and 0 <= radius <= 1e6):
        raise ShapeError(
            "expected a score_threshold from 0 to below 1 and a nms_radius from 0, "
            f"found {least} and {radius}"
        )
    odds = -math.log(1 / (float(np.float32(least)) + _ROUNDING) - 1)
    cells = float(np.float32(radius) / np.float32(stride))
    keep = call.custom_whole("max_detections", 1, _MOST)
    op = ops.DecodePoses(keep, float(np.float32(least)), float(np.float32(odds)), cells, stride)
    return call.builder.emit_all(op, maps)
