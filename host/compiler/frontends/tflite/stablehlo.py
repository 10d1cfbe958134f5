"""Import of StableHLO operators in TensorFlow Lite files, and TensorFlow Lite's own variants."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import INTEGERS
from edgekit.host.compiler.ir.types import DType, Operator, Padding, ShapeError, Tensor

_SIZE_LIMIT = 1 << 24  # elements of a dilated or padded tensor
_POOL_LIMIT = 256  # pixels in the window of a pool
_SHORT = 8  # window elements along one axis that are combined one by one

Indices = NDArray[np.int64]


def pad(call: TfliteCall) -> Tensor:
    """Pads with the second operand before, after and between elements; negative sizes crop."""
    rank = len(call.tensor(0, "input").shape)
    fields = ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding")
    sizes = [call.operator.option_vector(name) or () for name in fields]
    if any(len(s) != rank for s in sizes) or min(sizes[2], default=0) < 0:
        raise ShapeError(f"expected paddings of {rank} axes, found {sizes}")
    x, value = call.tensor(0, "input"), call.tensor(1, "value")
    return _pad_and_dilate(call, x, value, *(np.array(s, np.int64) for s in sizes))


def dilate(call: TfliteCall) -> Tensor:
    """Spaces elements by the second operand and fills the gaps with the third."""
    rank = len(call.tensor(0, "input").shape)
    steps = np.array(call.integers(1, "dilations"), np.int64)
    if steps.shape != (rank,) or steps.min(initial=1) < 1:
        raise ShapeError(f"expected {rank} dilations of at least 1, found {steps.tolist()}")
    x, value = call.tensor(0, "input"), call.tensor(2, "value")
    return _pad_and_dilate(call, x, value, 0 * steps, 0 * steps, steps - 1)


def _pad_and_dilate(
    call: TfliteCall, x: Tensor, fill: Tensor, low: Indices, high: Indices, between: Indices
) -> Tensor:
    """Gathers from the elements of x and the value `fill`, appended to them."""
    if fill.elements != 1 or fill.dtype is not x.dtype:
        raise ShapeError(f"expected one value of type {x.dtype.value}, found {list(fill.shape)}")
    shape = np.array(x.shape, np.int64)
    inner = shape + np.maximum(shape - 1, 0) * between
    if np.abs((low, high, between)).max(initial=0) > _SIZE_LIMIT:
        raise ShapeError(f"expected paddings of at most {_SIZE_LIMIT}, found more")
    whole = inner + low + high
    if whole.min(initial=1) < 1 or np.prod(whole.astype(np.float64)) > _SIZE_LIMIT:
        raise ShapeError(
            f"expected sizes of at least 1 and at most {_SIZE_LIMIT} elements, found "
            f"{whole.tolist()}"
        )
    for size in (int(np.prod(whole)), x.elements):
        call.builder.need_room((size,), np.int32)
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


_REGIONS: dict[str, Operator] = {
    "ADD": ops.Add(),
    "LOGICAL_AND": ops.And(),
    "LOGICAL_OR": ops.Or(),
    "MAXIMUM": ops.Maximum(),
    "MINIMUM": ops.Minimum(),
    "MUL": ops.Mul(),
    "STABLEHLO_ADD": ops.Add(),
    "STABLEHLO_AND": ops.And(),
    "STABLEHLO_MAXIMUM": ops.Maximum(),
    "STABLEHLO_MINIMUM": ops.Minimum(),
    "STABLEHLO_MULTIPLY": ops.Mul(),
    "STABLEHLO_OR": ops.Or(),
}


def reduce_window(call: TfliteCall) -> Tensor:
    join = _JOINS.get(call.option("ReduceFunction"))
    sizes, strides, dilations = (call.integers(i, "window") for i in (2, 3, 4))
    x, initial = call.tensor(0, "input"), call.tensor(1, "initial value")
    return _reduce_windows(call, x, initial, join, sizes, strides, dilations)


def reduce_region(call: TfliteCall) -> Tensor:
    """STABLEHLO_REDUCE_WINDOW: pads and dilates x with the initial value, then combines each window
    with the operator of a subgraph."""
    x = call.plain(0, DType.F32, *INTEGERS, DType.BOOL)
    initial, kind = call.plain(1, x.dtype), x.dtype
    join = _REGIONS.get(call.region("BodySubgraphIndex"))
    rank, option = len(x.shape), call.operator.option_vector
    sizes, strides, dilations, between = (
        option(name) or (1,) * rank
        for name in ("WindowDimensions", "WindowStrides", "WindowDilations", "BaseDilations")
    )
    around = np.array(option("Padding") or (0,) * 2 * rank, np.int64)
    if len(between) != rank or min(between, default=1) < 1 or around.shape != (2 * rank,):
        raise ShapeError(
            f"expected dilations from 1 and paddings of {rank} axes, found {list(between)} and "
            f"{around.tolist()}"
        )
    low, high = around.reshape(rank, 2).T
    if isinstance(join, ops.Maximum) and initial.elements == 1 and {*between, *dilations} == {1}:
        pooled = _max_pool(call, x, sizes, strides, around.reshape(rank, 2).tolist())
        if pooled is not None:
            return call.emit(join, pooled, call.reshape(initial, ()))
    if any(around) or any(b > 1 for b in between):
        x = _pad_and_dilate(call, x, initial, low, high, np.array(between, np.int64) - 1)
    if kind.is_quantized and isinstance(join, ops.Add | ops.Mul):  # the sum of quantized values
        x, initial = (call.convert(t, DType.I32) for t in (x, initial))
    y = _reduce_windows(call, x, initial, join, sizes, strides, dilations)
    return call.made(call.convert(y, kind))


def _max_pool(
    call: TfliteCall,
    x: Tensor,
    sizes: Sequence[int],
    strides: Sequence[int],
    around: list[list[int]],
) -> Tensor | None:
    """The pool of an f32 NHWC or NCHW image; None for other windows. Padding is ignored here: it is
    the initial value, which the caller combines anyway."""
    rank = len(x.shape)
    if x.dtype is not DType.F32 or not rank == len(sizes) == len(strides) == 4:
        return None
    image = (1, 2) if sizes[3] == strides[3] == 1 else (2, 3)
    others = [i for i in range(rank) if i not in image]
    window, stride = ((v[image[0]], v[image[1]]) for v in (sizes, strides))
    small = min(*window, *stride) > 0 and math.prod(window) <= _POOL_LIMIT
    if not small or any((sizes[i], strides[i], *around[i]) != (1, 1, 0, 0) for i in others):
        return None
    if any(not 0 <= p < sizes[i] for i in image for p in around[i]):
        return None
    pool = ops.MaxPool2D(window, stride, Padding(*around[image[0]], *around[image[1]]))
    if image == (1, 2):
        return call.emit(pool, x)
    return call.nchw(call.emit(pool, call.nhwc(x)))


def _reduce_windows(
    call: TfliteCall,
    x: Tensor,
    initial: Tensor,
    join: Operator | None,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Tensor:
    """Combines each window and the initial value, one axis at a time."""
    rank = len(x.shape)
    if join is None:
        raise ShapeError(
            "expected a sum, product, extreme, AND or OR of windows, found another join"
        )
    if any(len(s) != rank for s in (sizes, strides, dilations)):
        raise ShapeError(
            f"expected a window of {rank} axes, found sizes {list(sizes)}, strides {list(strides)} "
            f"and dilations {list(dilations)}"
        )
    if min(*sizes, *strides, *dilations, 1) < 1:
        raise ShapeError(f"expected windows of at least 1, found {list(sizes)}")
    if initial.elements != 1 or (isinstance(join, ops.And | ops.Or)) != (x.dtype is DType.BOOL):
        raise ShapeError(
            f"expected one initial value and a function of {x.dtype.value}, found "
            f"{initial.elements} values and {type(join).__name__}"
        )
    for axis, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True)):
        count = (x.shape[axis] - (size - 1) * dilation - 1) // stride + 1
        if count < 1:
            raise ShapeError(f"expected an axis of at least one window, found {x.shape[axis]}")
        if (size, stride) != (1, 1):
            x = _reduce_axis_windows(call, x, join, axis, count, size, stride, dilation)
    return call.emit(join, x, call.reshape(initial, ()))


def _reduce_axis_windows(
    call: TfliteCall,
    x: Tensor,
    join: Operator,
    axis: int,
    count: int,
    size: int,
    stride: int,
    dilation: int,
) -> Tensor:
    """`count` windows along one axis; long ones are built from parts of 2, 4, 8, ... elements."""
    rank = len(x.shape)

    def cut(part: Tensor, tap: int, count: int, stride: int) -> Tensor:
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        steps = tuple(stride if i == axis else 1 for i in range(rank))
        begin = tuple(tap * dilation if i == axis else 0 for i in range(rank))
        return call.emit(ops.StridedSlice(begin, steps, shape, shape), part)

    def joined(parts: Iterator[Tensor]) -> Tensor:
        return functools.reduce(lambda a, b: call.emit(join, a, b), parts)

    def parts() -> Iterator[Tensor]:
        part, width, done = x, 1, 0
        while True:
            if size & width:
                yield cut(part, done, count, stride)
                done += width
            if done == size:
                return
            room = part.shape[axis] - width * dilation
            part = call.emit(join, cut(part, 0, room, 1), cut(part, width, room, 1))
            width *= 2

    if size <= _SHORT:
        return joined(cut(x, tap, count, stride) for tap in range(size))
    return joined(parts())
