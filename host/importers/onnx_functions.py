"""ONNX functions of bits, of NaN and infinity, and around zero."""

from __future__ import annotations

import math

from edgekit.host.graph import ops
from edgekit.host.graph.checks import SIGNED
from edgekit.host.graph.types import DType, ShapeError, Tensor
from edgekit.host.importers.onnx_call import Call


def bit_shift(call: Call) -> Tensor:
    way = call.text("direction")
    if way not in ("LEFT", "RIGHT"):
        raise ShapeError(f"expected direction LEFT or RIGHT, found {way}")
    x, by = call.x(0), call.x(1)
    if way == "LEFT":
        return call.emit(ops.LeftShift(), x, by)
    width = 8 * x.dtype.bytes
    if by.data is not None and 0 <= by.data.min(initial=0) <= by.data.max(initial=0) < width:
        return call.emit(ops.RightShift(), x, by)
    # Below 0 and from the width on, all bits are shifted out.
    far = call.emit(ops.LessOrEqual(), call.scalar(width, by), by)
    if x.dtype in SIGNED:
        far = call.emit(ops.Or(), far, call.emit(ops.Less(), by, call.scalar(0, by)))
        by = call.emit(ops.Where(), far, call.scalar(width - 1, by), by)
        return call.emit(ops.RightShift(), x, by)
    return call.emit(ops.Where(), far, call.scalar(0, x), call.emit(ops.RightShift(), x, by))


def is_nan(call: Call) -> Tensor:
    """What is not equal to itself."""
    x = call.x(0)
    return call.emit(ops.Not(), call.emit(ops.Equal(), x, x))


def is_inf(call: Call) -> Tensor:
    x = call.x(0)
    positive, negative = (call.integer(f"detect_{sign}", 1) for sign in ("positive", "negative"))
    if positive and negative:
        x = call.emit(ops.Abs(), x)
    elif not positive and not negative:
        return call.emit(ops.Less(), x, x)
    infinity = math.inf if positive else -math.inf
    return call.emit(ops.Equal(), x, call.builder.floats(infinity))


def shrink(call: Call) -> Tensor:
    """x + bias below −lambd, x − bias above it, 0 between."""
    x, bias, limit = call.x(0), call.number("bias", 0.0), call.number("lambd", 0.5)
    result = x.dtype
    x = call.convert(x, DType.F32)
    zero = call.builder.floats(0.0)
    below = call.emit(ops.Less(), x, call.builder.floats(-limit))
    above = call.emit(ops.Less(), call.builder.floats(limit), x)
    raised = call.emit(ops.Add(), x, call.builder.floats(bias))
    lowered = call.emit(ops.Add(), x, call.builder.floats(-bias))
    inner = call.emit(ops.Where(), above, lowered, zero)
    return call.convert(call.emit(ops.Where(), below, raised, inner), result)
