"""Import of Caffe's SSD detector layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.caffe.call import CaffeCall
from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, ShapeError, Tensor

_SAME_RATIO = 1e-6
_VALUES_LIMIT = 1 << 24


def prior_box(call: CaffeCall) -> Tensor:
    """[1, 2, positions · boxes · 4]: corners of the boxes around each pixel of the first bottom,
    relative to the size of the second, and their variances; computed at compile time."""
    x, image = call.x(0), call.x(1)
    need_rank(x, 4)
    need_rank(image, 4)
    height, width = _read_height_width(call, "img_size", "img_h", "img_w", image.shape[2:])
    rows, columns = x.shape[2:]
    default = (height / rows, width / columns)
    step_h, step_w = _read_height_width(call, "step", "step_h", "step_w", default)
    sizes = _prior_sizes(call)
    if rows * columns * len(sizes) * 8 > _VALUES_LIMIT:
        raise ShapeError(f"expected at most {_VALUES_LIMIT} values, found {rows}x{columns} pixels")
    y = (np.arange(rows) + call.number("offset")) * step_h
    x_center = (np.arange(columns) + call.number("offset")) * step_w
    center = np.stack([*np.broadcast_arrays(x_center, y[:, None])], -1)[:, :, None]
    half = sizes / 2
    corners = np.concatenate([center - half, center + half], -1) / [width, height, width, height]
    boxes = np.clip(corners, 0, 1) if call.flag("clip") else corners
    variances = np.broadcast_to(_prior_variances(call), boxes.shape)
    return call.floats(np.stack([boxes.reshape(-1), variances.reshape(-1)])[None])


def detection_output(call: CaffeCall) -> Tensor:
    """[1, 1, images · rows, 7]. Caffe returns as many rows as it finds; here each image has a fixed
    number of rows, padded with -1."""
    locations, scores, priors = call.x(0), call.x(1), call.x(2)
    encoded = call.flag("variance_encoded_in_target")
    two_rows = priors.shape[:2] == (1, 2) or (encoded and priors.shape[:2] == (1, 1))
    if len(priors.shape) != 3 or not two_rows or priors.shape[2] % 4:
        raise ShapeError(f"expected boxes [1, 2, 4 · count], found {list(priors.shape)}")
    n, classes, images = priors.shape[2] // 4, call.integer("num_classes", 1), scores.shape[0]
    spread = 1 if call.flag("share_location") else classes
    if locations.elements != images * n * spread * 4 or scores.elements != images * n * classes:
        raise ShapeError(
            f"expected {images} images of {n} boxes with {classes} scores each, "
            f"found {list(locations.shape)} and {list(scores.shape)}"
        )
    boxes = _decode_boxes(call, call.reshape(locations, (images, n, spread, 4)), priors)
    rows = call.transpose(call.reshape(scores, (images, n, classes)), (0, 2, 1))
    return call.emit(_detection_output_op(call, n, classes), boxes, rows)


def _detection_output_op(call: CaffeCall, n: int, classes: int) -> ops.DetectionOutput:
    nms = call.layer.parameters.nms_param
    background = call.integer("background_label_id", -1)
    if nms.eta != 1 or not nms.nms_threshold >= 0:
        raise ShapeError(
            f"expected an nms_threshold of at least 0 and an eta of 1, "
            f"found {nms.nms_threshold} and {nms.eta}"
        )
    top_k = int(nms.top_k) if nms.top_k > 0 else n
    most = min(top_k, n) * max(classes - (0 <= background < classes), 1)
    keep = call.integer("keep_top_k", -1)
    lowest = float(np.finfo(np.float32).min)
    threshold = call.number("confidence_threshold") if call.has("confidence_threshold") else lowest
    return ops.DetectionOutput(
        most if keep < 1 else min(keep, most),
        min(top_k, n),
        threshold,
        float(nms.nms_threshold),
        background if background < classes else -1,
    )


def _decode_boxes(call: CaffeCall, x: Tensor, priors: Tensor) -> Tensor:
    """Corners [images, n, ., 4] of boxes encoded relative to `priors` (see prior_box)."""
    n = x.shape[1]
    rows = [priors]
    if priors.shape[1] > 1:
        rows = call.builder.emit_all(ops.Split(1, (1, 1)), [priors])
    corners, *variances = (call.reshape(row, (1, n, 1, 4)) for row in rows)
    if not call.flag("variance_encoded_in_target"):
        x = call.emit(ops.Mul(), x, variances[0])
    kind = call.choice("code_type")
    if kind == "CORNER":
        return call.emit(ops.Add(), x, corners)
    low, high = _split_in_half(call, corners)
    size = call.emit(ops.Sub(), high, low)
    if kind == "CORNER_SIZE":
        both = call.emit(ops.Concat(3), size, size)
        return call.emit(ops.Add(), corners, call.emit(ops.Mul(), x, both))
    half = call.builder.floats(0.5)
    center = call.emit(ops.Mul(), call.emit(ops.Add(), low, high), half)
    shift, stretch = _split_in_half(call, x)
    middle = call.emit(ops.Add(), call.emit(ops.Mul(), shift, size), center)
    reach = call.emit(ops.Mul(), call.emit(ops.Exp(), stretch), call.emit(ops.Mul(), size, half))
    ends = call.emit(ops.Sub(), middle, reach), call.emit(ops.Add(), middle, reach)
    return call.emit(ops.Concat(3), *ends)


def _split_in_half(call: CaffeCall, x: Tensor) -> list[Tensor]:
    return call.builder.emit_all(ops.Split(3, (2, 2)), [x])


def _read_height_width(
    call: CaffeCall, both: str, row: str, column: str, default: Sequence[float]
) -> tuple[float, float]:
    """Positive values for rows and columns; missing or 0 means the default."""
    names = (both, both) if call.has(both) else (row, column)
    values = [call.number(n) for n in names]
    if min(values) < 0:
        raise ShapeError(f"expected {both} to be positive, found {min(values)}")
    return (values[0], values[1]) if all(values) else (default[0], default[1])


def _prior_sizes(call: CaffeCall) -> Array:
    """Width and height of each box around a pixel: [boxes, 2]."""
    small, large = call.numbers("min_size"), call.numbers("max_size")
    if not small or (large and len(large) != len(small)) or min((*small, *large)) <= 0:
        raise ShapeError(
            f"expected positive min_size, and no max_size or the same number, "
            f"found {len(small)} and {len(large)}"
        )
    ratios = [1.0]
    for ratio in call.numbers("aspect_ratio"):
        if ratio <= 0:
            raise ShapeError(f"expected a positive aspect_ratio, found {ratio}")
        if all(abs(ratio - r) >= _SAME_RATIO for r in ratios):
            ratios += [ratio, 1 / ratio] if call.flag("flip") else [ratio]
    sizes = []
    for i, size in enumerate(small):
        sizes.append((size, size))
        if large:
            between = math.sqrt(size * large[i])
            sizes.append((between, between))
        sizes += [(size * math.sqrt(r), size / math.sqrt(r)) for r in ratios[1:]]
    return np.array(sizes)


def _prior_variances(call: CaffeCall) -> list[float]:
    values = call.numbers("variance") or [0.1]
    if len(values) not in (1, 4):
        raise ShapeError(f"expected 1 or 4 variances, found {len(values)}")
    return values
