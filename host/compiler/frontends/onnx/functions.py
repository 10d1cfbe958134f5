"""Import of ONNX bitwise functions, NaN and infinity tests, and other element-wise functions."""

from __future__ import annotations

import math

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.types import BFLOAT16
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import SIGNED
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_MATRIX_LIMIT = 4  # rows of a matrix


def bit_cast(call: OnnxCall) -> Tensor:
    to = call.integer("to")
    if to == BFLOAT16 or call.x(0).name in call.bfloat16:
        raise ShapeError(
            "expected types that keep their bits, found bfloat16, which is converted to f32"
        )
    return call.emit(ops.BitCast(call.dtype(to)), call.x(0))


def bit_shift(call: OnnxCall) -> Tensor:
    way = call.text("direction")
    if way not in ("LEFT", "RIGHT"):
        raise ShapeError(f"expected direction LEFT or RIGHT, found {way}")
    x, by = call.x(0), call.x(1)
    if way == "LEFT":
        return call.emit(ops.LeftShift(), x, by)
    width = 8 * x.dtype.bytes
    if by.data is not None and 0 <= by.data.min(initial=0) <= by.data.max(initial=0) < width:
        return call.emit(ops.RightShift(), x, by)
    # For counts below 0 or from the width on, all bits are shifted out.
    far = call.emit(ops.LessOrEqual(), call.scalar(width, by), by)
    if x.dtype in SIGNED:
        far = call.emit(ops.Or(), far, call.emit(ops.Less(), by, call.scalar(0, by)))
        by = call.emit(ops.Where(), far, call.scalar(width - 1, by), by)
        return call.emit(ops.RightShift(), x, by)
    return call.emit(ops.Where(), far, call.scalar(0, x), call.emit(ops.RightShift(), x, by))


def is_nan(call: OnnxCall) -> Tensor:
    """NaN is the only value not equal to itself."""
    x = call.x(0)
    return call.emit(ops.Not(), call.emit(ops.Equal(), x, x))


def is_inf(call: OnnxCall) -> Tensor:
    x = call.x(0)
    positive, negative = (call.integer(f"detect_{sign}", 1) for sign in ("positive", "negative"))
    if positive and negative:
        x = call.emit(ops.Abs(), x)
    elif not positive and not negative:
        return call.emit(ops.Less(), x, x)
    infinity = math.inf if positive else -math.inf
    return call.emit(ops.Equal(), x, call.builder.floats(infinity))


def shrink(call: OnnxCall) -> Tensor:
    """x + bias below −lambd, x − bias above lambd, 0 in between."""
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


def swiglu(call: OnnxCall) -> Tensor:
    """a · sigmoid(alpha · a) · b"""
    a, b = call.x(0), call.x(1)
    gate = call.emit(ops.Mul(), a, call.builder.floats(call.number("alpha", 1.0)))
    gated = call.emit(ops.Mul(), a, call.emit(ops.Logistic(), gate))
    return call.emit(ops.Mul(), gated, b)


def cum_prod(call: OnnxCall) -> Tensor:
    """Doubling scan: each step multiplies by the element at twice the previous distance."""
    x = call.x(0)
    axis = call.axis(call.single(1, "axis"), len(x.shape))
    n, reverse = x.shape[axis], bool(call.integer("reverse", 0))
    if call.integer("exclusive", 0):
        x = _behind_ones(call, x, axis, 1, reverse)
    distance = 1
    while distance < n:
        x = call.emit(ops.Mul(), x, _behind_ones(call, x, axis, distance, reverse))
        distance *= 2
    return x


def _behind_ones(call: OnnxCall, x: Tensor, axis: int, count: int, reverse: bool) -> Tensor:
    """`x` shifted by `count` along an axis, with ones at the start (end, if reverse)."""
    rank = len(x.shape)
    count = min(count, x.shape[axis])
    shape = tuple(count if i == axis else d for i, d in enumerate(x.shape))
    ones = call.filled(shape, 1, x.dtype.numpy)
    extent = tuple(d - count if i == axis else d for i, d in enumerate(x.shape))
    if not extent[axis]:
        return ones
    begin = tuple(count if i == axis and reverse else 0 for i in range(rank))
    rest = call.emit(ops.StridedSlice(begin, (1,) * rank, extent, extent), x)
    return call.emit(ops.Concat(axis), *((rest, ones) if reverse else (ones, rest)))


def determinant(call: OnnxCall) -> Tensor:
    """Determinants of small matrices by cofactor expansion along the first row."""
    x = call.x(0)
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2] or not 1 <= x.shape[-1] <= _MATRIX_LIMIT:
        raise ShapeError(
            f"expected square matrices of at most {_MATRIX_LIMIT} rows, found {list(x.shape)}"
        )
    n, lead = x.shape[-1], len(x.shape) - 2

    def element(row: int, column: int) -> Tensor:
        begin, extent = (*(0,) * lead, row, column), (*x.shape[:-2], 1, 1)
        op = ops.StridedSlice(begin, (1,) * (lead + 2), extent, x.shape[:-2])
        return call.emit(op, x)

    def of(columns: tuple[int, ...]) -> Tensor:
        row = n - len(columns)
        if len(columns) == 1:
            return element(row, columns[0])
        total: Tensor | None = None
        for i, column in enumerate(columns):
            minor = of(columns[:i] + columns[i + 1 :])
            part = call.emit(ops.Mul(), element(row, column), minor)
            sign = ops.Sub() if i % 2 else ops.Add()
            total = part if total is None else call.emit(sign, total, part)
        assert total is not None
        return total

    return of(tuple(range(n)))
