"""ONNX operators that pick parts of a tensor, where which ones is known while importing."""

from __future__ import annotations

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import ShapeError, Tensor
from edgekit.host.importers.onnx_call import Call
from edgekit.host.importers.onnx_conv import crop, surround

_SIZE_LIMIT = 1 << 26


def center_crop_pad(call: Call) -> Tensor:
    """Cut or padded with zeros to a size, the middle stays; of odd differences more at the end."""
    x, asked = call.x(0), call.integers(1, "shape")
    axes = call.axes(len(x.shape), 2) or tuple(range(len(x.shape)))
    if len(asked) != len(axes) or not all(0 < n <= _SIZE_LIMIT for n in asked):
        raise ShapeError(f"expected {len(axes)} positive sizes, found {list(asked)}")
    rank = len(x.shape)
    cut, pads = ([0] * rank, [0] * rank), ([0] * rank, [0] * rank)
    for axis, size in zip(axes, asked, strict=True):
        change = abs(x.shape[axis] - size)
        sides = cut if x.shape[axis] > size else pads
        sides[0][axis], sides[1][axis] = change // 2, change - change // 2
    return surround(call, crop(call, x, *cut), *pads, 0.0)


def compress(call: Call) -> Tensor:
    """The elements along an axis, or of x laid out flat, that a constant condition picks."""
    x = call.x(0)
    condition = call.value(1, "condition").reshape(-1)
    axis = call.axis(call.integer("axis"), len(x.shape)) if call.has("axis") else 0
    x = x if call.has("axis") else call.reshape(x, (x.elements,))
    if condition.size > x.shape[axis]:
        raise ShapeError(f"expected at most {x.shape[axis]} conditions, found {condition.size}")
    picked = np.flatnonzero(condition).astype(np.int64)
    return call.emit(ops.Gather(axis), x, call.constant(picked))


def reverse_sequence(call: Call) -> Tensor:
    """The first elements of each sequence in reverse, as many as a constant says."""
    x, lengths = call.x(0), call.integers(1, "lengths")
    time, batch = call.integer("time_axis", 0), call.integer("batch_axis", 1)
    if sorted((time, batch)) != [0, 1] or len(x.shape) < 2:
        raise ShapeError(f"expected time and batch as axes 0 and 1, found {time} and {batch}")
    steps, count = x.shape[time], x.shape[batch]
    if len(lengths) != count or not all(0 <= n <= steps for n in lengths):
        raise ShapeError(f"expected {count} lengths up to {steps}, found {list(lengths)}")
    at = np.arange(steps)[:, None]
    source = np.where(at < np.array(lengths), np.array(lengths) - 1 - at, at)
    flat = source * count + np.arange(count)
    if batch == 0:
        flat = (source + np.arange(count) * steps).T
    joined = call.reshape(x, (steps * count, *x.shape[2:]))
    return call.emit(ops.Gather(0), joined, call.constant(flat.astype(np.int64)))
