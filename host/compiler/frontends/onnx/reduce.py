"""Import of ONNX softmax, composed normalizations, reductions and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import Emitter, need_axes, need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.math import Row
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Operator, ShapeError, Tensor

_SUMMED_LIMIT = 1 << 13  # the triangle has the square of this many elements


def softmax(call: OnnxCall) -> Tensor:
    x = call.x(0)
    need_axes(x, 1)
    axis = call.axis(call.integer("axis", 1 if call.opset < 13 else -1), len(x.shape))
    if call.opset < 13 and math.prod(x.shape[axis:]) != x.shape[axis]:
        rows = call.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return call.reshape(call.emit(ops.Softmax(), rows), x.shape)
    return call.back(call.emit(ops.Softmax(), call.last(x, axis)), axis)


def log_softmax(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axis = call.axis(call.integer("axis", 1 if call.opset < 13 else -1), max(len(x.shape), 1))
    axes = tuple(range(axis, len(x.shape))) if call.opset < 13 else (axis,)
    return log_of_softmax(call, x, axes)


def log_of_softmax(call: OnnxCall, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """x − max − log Σ e^(x − max): taking the log of a softmax would lose small values."""
    shifted = call.emit(ops.Sub(), x, total(call, ops.ReduceMax, x, axes, True))
    powers = total(call, ops.ReduceSum, call.emit(ops.Exp(), shifted), axes, True)
    return call.emit(ops.Sub(), shifted, call.emit(ops.Log(), powers))


def hardmax(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axis = call.axis(call.integer("axis", 1 if call.opset < 13 else -1), max(len(x.shape), 1))
    if call.opset < 13:
        flat = call.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return call.reshape(_one_at_largest(call, flat, 1), x.shape)
    return _one_at_largest(call, x, axis)


def _one_at_largest(call: OnnxCall, x: Tensor, axis: int) -> Tensor:
    where_largest = call.emit(ops.ArgExtreme(axis), x)
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    positions = call.counting(shape)
    return call.convert(call.emit(ops.Equal(), positions, where_largest), x.dtype)


def normalized(call: Emitter, x: Tensor, axes: Sequence[int], epsilon: float) -> list[Tensor]:
    """[(x − mean) / √(variance + epsilon), mean, 1 / √(variance + epsilon)]"""
    mean = average(call, x, tuple(axes), True)
    centered = call.emit(ops.Sub(), x, mean)
    variance = average(call, call.emit(ops.Mul(), centered, centered), tuple(axes), True)
    shifted = call.emit(ops.Add(), variance, call.builder.floats(epsilon))
    inverse = call.emit(ops.Reciprocal(), call.emit(ops.Sqrt(), shifted))
    return [call.emit(ops.Mul(), centered, inverse), mean, inverse]


def layer_normalization(call: OnnxCall) -> list[Tensor]:
    x = call.x(0)
    axis = call.axis(call.integer("axis", -1), len(x.shape))
    axes = range(axis, len(x.shape))
    y, mean, inverse = normalized(call, x, axes, call.number("epsilon", 1e-5))
    y = call.emit(ops.Mul(), y, call.x(1))
    bias = call.maybe(2)
    y = y if bias is None else call.emit(ops.Add(), y, bias)
    return [y, mean, inverse]


def rms_normalization(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axes = tuple(range(call.axis(call.integer("axis", -1), len(x.shape)), len(x.shape)))
    square = average(call, call.emit(ops.Mul(), x, x), axes, True)
    shifted = call.emit(ops.Add(), square, call.builder.floats(call.number("epsilon", 1e-5)))
    inverse = call.emit(ops.Reciprocal(), call.emit(ops.Sqrt(), shifted))
    return call.emit(ops.Mul(), call.emit(ops.Mul(), x, inverse), call.x(1))


def instance_normalization(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axes = range(2, len(x.shape))
    y = normalized(call, x, axes, call.number("epsilon", 1e-5))[0]
    return _per_channel(call, y, call.x(1), call.x(2))


def group_normalization(call: OnnxCall) -> Tensor:
    x, groups = call.x(0), call.integer("num_groups")
    need_axes(x, 2)
    need_rank(call.x(1), 1)
    if not x.elements:
        return x
    if groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"expected groups that divide {x.shape[1]} channels, found {groups}")
    grouped = call.reshape(x, (x.shape[0], groups, -(-x.elements // (x.shape[0] * groups))))
    y = normalized(call, grouped, (2,), call.number("epsilon", 1e-5))[0]
    scale, bias = call.x(1), call.x(2)
    if scale.shape[0] != x.shape[1]:  # per group, before opset 21
        call.builder.need_room(x.shape[1:2], np.int64)
        times = call.constant(np.repeat(np.arange(groups), x.shape[1] // groups))
        scale, bias = (call.emit(ops.Gather(0), t, times) for t in (scale, bias))
    return _per_channel(call, call.reshape(y, x.shape), scale, bias)


def _per_channel(call: OnnxCall, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    shape = (scale.elements, *(1,) * (len(x.shape) - 2))
    scaled = call.emit(ops.Mul(), x, call.reshape(scale, shape))
    return call.emit(ops.Add(), scaled, call.reshape(bias, shape))


def mean_variance_normalization(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axes = tuple(call.axis(a, len(x.shape)) for a in call.list("axes", (0, 2, 3)))
    return normalized(call, x, sorted(axes), 1e-9)[0]


def lp_normalization(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axis = call.axis(call.integer("axis", -1), len(x.shape))
    if call.integer("p", 2) == 1:
        norm = total(call, ops.ReduceSum, call.emit(ops.Abs(), x), (axis,), True)
    else:
        square = total(call, ops.ReduceSum, call.emit(ops.Mul(), x, x), (axis,), True)
        norm = call.emit(ops.Sqrt(), square)
    zero = call.emit(ops.Equal(), norm, call.builder.floats(0.0))
    safe = call.emit(ops.Where(), zero, call.builder.floats(1.0), norm)
    return call.emit(ops.Div(), x, safe)


def lrn(call: OnnxCall) -> Tensor:
    alpha, beta = call.number("alpha", 1e-4), call.number("beta", 0.75)
    return across_channels(
        call, call.x(0), call.integer("size"), alpha, beta, call.number("bias", 1.0)
    )


def across_channels(
    call: Emitter, x: Tensor, size: int, alpha: float, beta: float, bias: float
) -> Tensor:
    """x / (bias + alpha / size · Σ x²)^beta, with the sum over neighboring channels."""
    if not 1 <= size <= 1024:
        raise ShapeError(f"expected a size from 1 to 1024, found {size}")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    if len(x.shape) < 2 or x.dtype.is_quantized:
        raise ShapeError(f"expected numbers with channels, found {x.dtype.value}{list(x.shape)}")
    rest = (0,) * (len(x.shape) - 2)
    square = call.emit(ops.Mul(), x, x)
    padded = call.emit(ops.Pad((0, before, *rest), (0, after, *rest)), square)
    sums: Tensor | None = None
    for i in range(size):
        op = ops.StridedSlice((0, i, *rest), (1,) * len(x.shape), x.shape, x.shape)
        part = call.emit(op, padded)
        sums = part if sums is None else call.emit(ops.Add(), sums, part)
    assert sums is not None
    scaled = call.emit(ops.Mul(), sums, call.builder.floats(alpha / size))
    base = call.emit(ops.Add(), scaled, call.builder.floats(bias))
    return call.emit(ops.Div(), x, call.emit(ops.Pow(), base, call.builder.floats(beta)))


# Reductions


def total(
    call: Emitter, kind: Callable[..., ops.Total], x: Tensor, axes: tuple[int, ...], keep: bool
) -> Tensor:
    """One reduction per run of adjacent axes, which is what kernels support."""
    order = sorted(axes)
    y = x
    while order:
        run = [order.pop()]
        while order and order[-1] == run[-1] - 1:
            run.append(order.pop())
        y = call.emit(kind(tuple(reversed(run)), True), y)
    if keep or not axes:
        return y
    return call.reshape(y, tuple(d for i, d in enumerate(x.shape) if i not in axes))


def average(call: Emitter, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if not axes:
        return x
    if not x.elements:
        raise ShapeError(f"expected elements to take the mean of, found {list(x.shape)}")
    if x.dtype is not DType.F32:
        return call.convert(average(call, call.convert(x, DType.F32), axes, keep), x.dtype)
    if sorted(axes) == [2, 3] and len(x.shape) == 4:
        return call.emit(ops.Mean((2, 3), keep), x)
    count = math.prod(x.shape[a] for a in axes)
    sums = total(call, ops.ReduceSum, x, axes, keep)
    return call.emit(ops.Div(), sums, call.builder.floats(count))


def _reduction_axes(call: OnnxCall, x: Tensor) -> tuple[int, ...]:
    axes = call.axes(len(x.shape))
    if axes or (axes is not None and call.integer("noop_with_empty_axes", 0)):
        return axes
    return () if call.integer("noop_with_empty_axes", 0) else tuple(range(len(x.shape)))


def reduce_by(kind: Callable[..., ops.Total], before: str = "", after: str = "") -> Row:
    """A reduction handler; `before` and `after` the sum: "abs", "square", "log" or "sqrt"."""
    steps: dict[str, Operator] = {"abs": ops.Abs(), "log": ops.Log(), "sqrt": ops.Sqrt()}

    def build(call: OnnxCall) -> Tensor:
        x = call.x(0)
        axes, keep = _reduction_axes(call, x), bool(call.integer("keepdims", 1))
        if x.dtype is DType.BOOL:
            found = total(call, kind, call.convert(x, DType.U8), axes, keep)
            return call.convert(found, DType.BOOL)
        y = call.emit(ops.Mul(), x, x) if before == "square" else x
        y = call.emit(steps[before], y) if before in steps else y
        y = total(call, kind, y, axes, keep)
        if after and y.dtype is not DType.F32:
            return call.convert(call.emit(steps[after], call.convert(y, DType.F32)), x.dtype)
        return call.emit(steps[after], y) if after else y

    return build


def reduce_mean(call: OnnxCall) -> Tensor:
    x = call.x(0)
    return average(call, x, _reduction_axes(call, x), bool(call.integer("keepdims", 1)))


def reduce_log_sum_exp(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axes, keep = _reduction_axes(call, x), bool(call.integer("keepdims", 1))
    if not axes:
        return x
    largest = total(call, ops.ReduceMax, x, axes, True)
    powers = call.emit(ops.Exp(), call.emit(ops.Sub(), x, largest))
    logs = call.emit(ops.Log(), total(call, ops.ReduceSum, powers, axes, True))
    y = call.emit(ops.Add(), logs, largest)
    kept = tuple(d for i, d in enumerate(x.shape) if i not in axes)
    return y if keep else call.reshape(y, kept)


def arg_extreme(smallest: bool) -> Row:
    def build(call: OnnxCall) -> Tensor:
        x = call.x(0)
        axis = call.axis(call.integer("axis", 0), len(x.shape))
        op = ops.ArgExtreme(axis, smallest, bool(call.integer("select_last_index", 0)))
        y = call.emit(op, x)
        if call.integer("keepdims", 1):
            return y
        return call.reshape(y, x.shape[:axis] + x.shape[axis + 1 :])

    return build


def cum_sum(call: OnnxCall) -> Tensor:
    """A matrix product with a triangle of ones, unless it is known what is summed up."""
    x = call.x(0)
    axis = call.axis(call.single(1, "axis"), len(x.shape))
    n = x.shape[axis]
    if x.data is not None and not call.integer("exclusive", 0) and not call.integer("reverse", 0):
        return call.constant(np.cumsum(x.data, axis, dtype=x.data.dtype))
    if n > _SUMMED_LIMIT:
        raise ShapeError(f"expected at most {_SUMMED_LIMIT} elements to sum up, found {n}")
    call.builder.need_room((n, n), np.float32)
    ones = np.tri(n, n, -call.integer("exclusive", 0), dtype=np.float32)
    weights = call.constant(ones.T if call.integer("reverse", 0) else ones)
    moved = call.last(call.convert(x, DType.F32), axis)
    y = call.emit(ops.FullyConnected(True), moved, weights, None)
    return call.convert(call.back(y, axis), x.dtype)


def negative_log_likelihood_loss(call: OnnxCall) -> Tensor:
    return _nll_loss(call, call.x(0))


def softmax_cross_entropy_loss(call: OnnxCall) -> list[Tensor]:
    logs = log_of_softmax(call, call.x(0), (1,))
    return [_nll_loss(call, logs), logs]


def _nll_loss(call: OnnxCall, logs: Tensor) -> Tensor:
    """−weight · log at each target class (input 1); or their weighted mean, or their sum."""
    target, classes = call.x(1), logs.shape[1:2]
    need_axes(logs, 2)
    if (logs.shape[0], *logs.shape[2:]) != target.shape or not classes:
        raise ShapeError(
            f"expected a class for each row of {list(logs.shape)}, found {list(target.shape)}"
        )
    wide = call.convert(call.reshape(target, (target.shape[0], 1, *target.shape[1:])), DType.I64)
    behind = (1,) * (len(logs.shape) - 2)
    hit = call.emit(ops.Equal(), wide, call.counting((*classes, *behind)))
    if call.has("ignore_index"):
        ignored = call.constant(np.array(call.integer("ignore_index"), np.int64))
        counted = call.emit(ops.Not(), call.emit(ops.Equal(), wide, ignored))
        hit = call.emit(ops.And(), hit, counted)
    weights = call.builder.floats(1.0)
    if call.maybe(2) is not None:
        weights = call.reshape(call.x(2), (*classes, *behind))
        logs = call.emit(ops.Mul(), logs, weights)
    zero = call.builder.floats(0.0)
    picked = call.emit(ops.Where(), hit, call.emit(ops.Neg(), logs), zero)
    kind, every = call.text("reduction", "mean"), tuple(range(len(logs.shape)))
    if kind == "none":
        return total(call, ops.ReduceSum, picked, (1,), False)
    sums = total(call, ops.ReduceSum, picked, every, False)
    if kind == "sum":
        return sums
    if kind != "mean":
        raise ShapeError(f"expected reduction none, sum or mean, found {kind}")
    counts = call.emit(ops.Where(), hit, weights, zero)
    return call.emit(ops.Div(), sums, total(call, ops.ReduceSum, counts, every, False))
