"""Caffe's layers of SSD detectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.graph.types import Array, ShapeError, Tensor
from edgekit.host.importers.caffe_call import Call
from edgekit.host.importers.emitter import need_rank

_SAME_RATIO = 1e-6
_VALUES_LIMIT = 1 << 24


def prior_box(call: Call) -> Tensor:
    """[1, 2, positions · boxes · 4]: corners of the boxes around each pixel of the first bottom,
    as parts of the second's size, and their variances; known when the model is compiled."""
    x, image = call.x(0), call.x(1)
    need_rank(x, 4)
    need_rank(image, 4)
    height, width = _both(call, "img_size", "img_h", "img_w", image.shape[2:])
    rows, columns = x.shape[2:]
    default = (height / rows, width / columns)
    step_h, step_w = _both(call, "step", "step_h", "step_w", default)
    sizes = _sizes(call)
    if rows * columns * len(sizes) * 8 > _VALUES_LIMIT:
        raise ShapeError(f"expected at most {_VALUES_LIMIT} values, found {rows}x{columns} pixels")
    y = (np.arange(rows) + call.number("offset")) * step_h
    x_center = (np.arange(columns) + call.number("offset")) * step_w
    center = np.stack([*np.broadcast_arrays(x_center, y[:, None])], -1)[:, :, None]
    half = sizes / 2
    corners = np.concatenate([center - half, center + half], -1) / [width, height, width, height]
    boxes = np.clip(corners, 0, 1) if call.flag("clip") else corners
    variances = np.broadcast_to(_variances(call), boxes.shape)
    return call.floats(np.stack([boxes.reshape(-1), variances.reshape(-1)])[None])


def _both(
    call: Call, both: str, row: str, column: str, default: Sequence[float]
) -> tuple[float, float]:
    """A positive value of rows and of columns; 0 or none asks for the default."""
    names = (both, both) if call.has(both) else (row, column)
    values = [call.number(n) for n in names]
    if min(values) < 0:
        raise ShapeError(f"expected {both} to be positive, found {min(values)}")
    return (values[0], values[1]) if all(values) else (default[0], default[1])


def _sizes(call: Call) -> Array:
    """Width and height of each box around a pixel: [boxes, 2]."""
    small, large = call.numbers("min_size"), call.numbers("max_size")
    if not small or (large and len(large) != len(small)) or min((*small, *large)) <= 0:
        raise ShapeError(
            f"expected positive min_size, and as many max_size or none, "
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


def _variances(call: Call) -> list[float]:
    values = call.numbers("variance") or [0.1]
    if len(values) not in (1, 4):
        raise ShapeError(f"expected 1 or 4 variances, found {len(values)}")
    return values
