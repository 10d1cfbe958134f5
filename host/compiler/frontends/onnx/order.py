"""Import of ONNX operators that sort."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.common.extent import extent
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor

_HIGHEST_BIT = 1 << 63


def top_k(call: OnnxCall) -> list[Tensor]:
    """[values, indices]; always sorted, as `sorted` = 0 permits. Of rows that data count, filler
    is last; a computed k counts the rows of the results."""
    x, largest = call.x(0), bool(call.integer("largest", 1))
    axis = call.axis(call.integer("axis", -1), len(x.shape))
    asked = call.x(1)
    if asked.data is None:
        _, high = extent(call.builder, asked)
        k = int(min(max(high, 0), x.shape[axis]))
    else:
        k = call.single(1, "k")
    if axis in call.bounded.axes(x):
        x = _with_filler_last(call, x, axis, largest)
    made = [call.back(t, axis) for t in _sorted(call, call.last(x, axis), ops.TopK(k, not largest))]
    return made if asked.data is not None else [_counted(call, t, asked, axis) for t in made]


def _sorted(call: OnnxCall, keys: Tensor, op: ops.TopK) -> list[Tensor]:
    """[values, indices] along the last axis."""
    if keys.dtype not in (DType.U64, DType.U32, DType.U16):
        return call.builder.emit_all(op, [keys], keys.quant)
    values, places = call.builder.emit_all(op, [signed(call, keys)])
    if keys.dtype is DType.U64:
        bits = call.emit(ops.BitCast(DType.U64), values)
        values = call.emit(ops.BitwiseXor(), bits, call.scalar(_HIGHEST_BIT, bits))
    return [call.convert(values, keys.dtype), places]


def _with_filler_last(call: OnnxCall, x: Tensor, axis: int, largest: bool) -> Tensor:
    """x with values in its filler that sort behind all others, or among the last."""
    valid = call.bounded.valid(x)
    assert valid is not None, "only for rows that data count"
    if x.dtype.is_float:
        last = -math.inf if largest else math.inf
    else:
        ends = np.iinfo(x.dtype.numpy)
        last = ends.min if largest else ends.max
    along = call.reshape(valid, (x.shape[axis], *(1,) * (len(x.shape) - 1 - axis)))
    return call.emit(ops.Where(), along, x, call.scalar(last, x))


def _counted(call: OnnxCall, x: Tensor, count: Tensor, axis: int) -> Tensor:
    """The first `count` rows of x; zeros behind them."""
    size = x.shape[axis]
    count = call.reshape(call.convert(count, DType.I64), (1,))
    there = call.emit(ops.Less(), call.counting((size,)), count)
    along = call.reshape(there, (size, *(1,) * (len(x.shape) - 1 - axis)))
    kept = call.emit(ops.Where(), along, x, call.scalar(0, x))
    return kept if call.bounded.add_alike(kept, count) else call.counted(kept, count, axis)


def signed(call: OnnxCall, x: Tensor) -> Tensor:
    """Unsigned integers as s64, with the same order."""
    if x.dtype is not DType.U64:
        return call.convert(x, DType.I64)
    flipped = call.emit(ops.BitwiseXor(), x, call.scalar(_HIGHEST_BIT, x))
    return call.emit(ops.BitCast(DType.I64), flipped)
