"""Operators of StableHLO that TensorFlow Lite runs, and what it makes of others of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, Operator, ShapeError, Tensor
from edgekit.host.importers.tflite_call import Call

_SIZE_LIMIT = 1 << 24  # elements of an image with room between its pixels
_WINDOW_LIMIT = 256  # values along one axis of a window

Indices = NDArray[np.int64]


def pad(call: Call) -> Tensor:
    """By the second operand: before, after and between elements; sizes below 0 cut off."""
    rank = len(call.tensor(0, "input").shape)
    fields = ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding")
    sizes = [call.operator.option_vector(name) or () for name in fields]
    if any(len(s) != rank for s in sizes) or min(sizes[2], default=0) < 0:
        raise ShapeError(f"expected paddings of {rank} axes, found {sizes}")
    return _spread(call, 1, *(np.array(s, np.int64) for s in sizes))


def dilate(call: Call) -> Tensor:
    """Elements as many apart as the second operand says, and the third one between them."""
    rank = len(call.tensor(0, "input").shape)
    steps = np.array(call.integers(1, "dilations"), np.int64)
    if steps.shape != (rank,) or steps.min(initial=1) < 1:
        raise ShapeError(f"expected {rank} dilations of at least 1, found {steps.tolist()}")
    return _spread(call, 2, 0 * steps, 0 * steps, steps - 1)


def _spread(call: Call, value: int, low: Indices, high: Indices, between: Indices) -> Tensor:
    """Elements picked from those of the input and the value, operand `value`, behind them."""
    x, fill = call.tensor(0, "input"), call.tensor(value, "value")
    if fill.elements != 1 or fill.dtype is not x.dtype:
        raise ShapeError(f"expected one value of type {x.dtype.value}, found {list(fill.shape)}")
    shape = np.array(x.shape, np.int64)
    inner = shape + np.maximum(shape - 1, 0) * between
    if np.abs((low, high, between)).max(initial=0) > _SIZE_LIMIT:
        raise ShapeError(f"expected paddings of at most {_SIZE_LIMIT}, found more")
    whole = inner + low + high
    if whole.min(initial=1) < 1 or np.prod(whole.astype(np.float64)) > _SIZE_LIMIT:
        raise ShapeError(f"expected sizes from 1, {_SIZE_LIMIT} in all, found {whole.tolist()}")
    picks = np.full(whole, x.elements, np.int32)
    source = np.arange(x.elements, dtype=np.int32).reshape(x.shape)
    places = []
    for axis, size in enumerate(whole):
        at = np.arange(shape[axis]) * (between[axis] + 1) + low[axis]
        inside = (at >= 0) & (at < size)
        source = np.compress(inside, source, axis)
        places.append(at[inside])
    picks[np.ix_(*places)] = source
    parts = [call.reshape(x, (x.elements,)), call.reshape(fill, (1,))]
    values = call.emit(ops.Concat(0), *parts, quant=x.quant)
    return call.emit(ops.Gather(0), values, call.constant(picks), quant=x.quant)


_JOINS: dict[int, Operator] = {
    1: ops.Add(),
    2: ops.Mul(),
    3: ops.Minimum(),
    4: ops.Maximum(),
    5: ops.And(),
    6: ops.Or(),
}


def reduce_window(call: Call) -> Tensor:
    """All of a window and the initial value joined; one axis after the other."""
    x, initial = call.tensor(0, "input"), call.tensor(1, "initial value")
    rank, join = len(x.shape), _JOINS.get(call.option("ReduceFunction"))
    sizes, strides, dilations = (call.integers(i, "window") for i in (2, 3, 4))
    if join is None or any(len(s) != rank for s in (sizes, strides, dilations)):
        raise ShapeError(f"expected a window of {rank} axes and a known function, found others")
    if min(*sizes, *strides, *dilations, 1) < 1 or max(sizes, default=1) > _WINDOW_LIMIT:
        raise ShapeError(f"expected windows of 1 to {_WINDOW_LIMIT}, found {list(sizes)}")
    if initial.elements != 1 or (isinstance(join, ops.And | ops.Or)) != (x.dtype is DType.BOOL):
        raise ShapeError(f"expected a function of {x.dtype.value}, found another")
    for axis, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True)):
        count = (x.shape[axis] - (size - 1) * dilation - 1) // stride + 1
        if count < 1:
            raise ShapeError(f"expected an axis of at least one window, found {x.shape[axis]}")
        if (size, stride) == (1, 1):
            continue
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        steps = tuple(stride if i == axis else 1 for i in range(rank))
        y = None
        for tap in range(size):
            begin = tuple(tap * dilation if i == axis else 0 for i in range(rank))
            part = call.emit(ops.StridedSlice(begin, steps, shape, shape), x)
            y = part if y is None else call.emit(join, y, part)
        assert y is not None
        x = y
    return call.emit(join, x, call.reshape(initial, ()))
