"""Import of Caffe's element-wise layers, normalizations and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.frontends.caffe.call import CaffeCall
from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.reduce import average, normalized, total
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import (
    Activation,
    DType,
    Operator,
    Shape,
    ShapeError,
    Tensor,
)

Row = Callable[[CaffeCall], Tensor | list[Tensor]]


def function(op: Operator) -> Row:
    """A handler for a layer with one operand and no attributes."""
    return lambda call: call.emit(op, call.only())


def _scale_and_shift(call: CaffeCall, x: Tensor, scale: float, shift: float) -> Tensor:
    y = x if scale == 1 else call.emit(ops.Mul(), x, call.builder.floats(scale))
    return y if shift == 0 else call.emit(ops.Add(), y, call.builder.floats(shift))


def relu(call: CaffeCall) -> Tensor:
    slope = call.number("negative_slope")
    op = ops.LeakyRelu(slope) if slope else ops.Clamp(Activation.RELU)
    return call.emit(op, call.only())


def prelu(call: CaffeCall) -> Tensor:
    x = call.only()
    channels = _channel_shape(x)
    count = 1 if call.flag("channel_shared") else channels[0]
    slope = call.blob(0, (count,), "slopes")
    return call.emit(ops.PRelu(), x, call.floats(slope.reshape(-1, *channels[1:])))


def _channel_shape(x: Tensor) -> Shape:
    """The shape of a per-channel value."""
    if len(x.shape) < 2:
        raise ShapeError(f"expected a batch of channels, found shape {list(x.shape)}")
    return (x.shape[1], *(1,) * (len(x.shape) - 2))


def elu(call: CaffeCall) -> Tensor:
    return call.emit(ops.Elu(call.number("alpha")), call.only())


def clip(call: CaffeCall) -> Tensor:
    low, high = call.number("min"), call.number("max")
    if not (call.has("min") and call.has("max")) or low > high:
        raise ShapeError(f"expected min and max with min <= max, found {low} and {high}")
    return call.emit(ops.Clip(low, high), call.only())


def swish(call: CaffeCall) -> Tensor:
    x = call.only()
    inner = _scale_and_shift(call, x, call.number("beta"), 0)
    return call.emit(ops.Mul(), x, call.emit(ops.Logistic(), inner))


def threshold(call: CaffeCall) -> Tensor:
    above = call.emit(ops.Less(), call.builder.floats(call.number("threshold")), call.only())
    return call.convert(above, DType.F32)


def power(call: CaffeCall) -> Tensor:
    exponent = call.number("power")
    if exponent == 0:
        return call.filled(call.only().shape, 1, np.float32)
    y = _scale_and_shift(call, call.only(), call.number("scale"), call.number("shift"))
    if exponent == 1:
        return y
    if exponent == 2:
        return call.emit(ops.Mul(), y, y)
    if exponent == 0.5:
        return call.emit(ops.Sqrt(), y)
    if exponent == -1:
        return call.emit(ops.Reciprocal(), y)
    return call.emit(ops.Pow(), y, call.builder.floats(exponent))


def exp(call: CaffeCall) -> Tensor:
    rate = _logarithm_of_base(call)
    scale, shift = call.number("scale") * rate, call.number("shift") * rate
    return call.emit(ops.Exp(), _scale_and_shift(call, call.only(), scale, shift))


def log(call: CaffeCall) -> Tensor:
    y = _scale_and_shift(call, call.only(), call.number("scale"), call.number("shift"))
    return _scale_and_shift(call, call.emit(ops.Log(), y), 1 / _logarithm_of_base(call), 0)


def _logarithm_of_base(call: CaffeCall) -> float:
    """A base of -1 means e."""
    base = call.number("base")
    if base != -1 and (base <= 0 or base == 1):
        raise ShapeError(f"expected a positive base other than 1, found {base}")
    return 1.0 if base == -1 else math.log(base)


def dropout(call: CaffeCall) -> Tensor:
    """The identity at inference, unless training left the scaling to it."""
    kept = 1.0 if call.flag("scale_train") else 1 - call.number("dropout_ratio")
    return _scale_and_shift(call, call.only(), kept, 0)


def eltwise(call: CaffeCall) -> Tensor:
    parts, kind = list(call.all()), call.choice("operation")
    coefficients = call.numbers("coeff")
    if any(p.shape != parts[0].shape for p in parts):
        found = ", ".join(str(list(p.shape)) for p in parts[:4])
        raise ShapeError(f"expected bottoms of one shape, found {found}")
    if coefficients and (kind != "SUM" or len(coefficients) != len(parts)):
        raise ShapeError(
            f"expected a coefficient for each of {len(parts)} terms of a sum, "
            f"found {len(coefficients)}"
        )
    op = {"PROD": ops.Mul(), "SUM": ops.Add(), "MAX": ops.Maximum()}[kind]
    for i, scale in enumerate(coefficients):
        parts[i] = _scale_and_shift(call, parts[i], scale, 0)
    y = parts[0]
    for part in parts[1:]:
        y = call.emit(op, y, part)
    return y


def axpy(call: CaffeCall) -> Tensor:
    """The squeeze-and-excitation layer: per-channel scale · x + y."""
    factor, x, y = call.x(0), call.x(1), call.x(2)
    need_rank(x, 4)
    if factor.elements != x.shape[0] * x.shape[1]:
        raise ShapeError(f"expected a factor per channel of {list(x.shape)}, found {factor.shape}")
    scaled = call.emit(ops.Mul(), x, call.reshape(factor, (*x.shape[:2], 1, 1)))
    return call.emit(ops.Add(), scaled, y)


def scale(call: CaffeCall) -> Tensor:
    y = call.emit(ops.Mul(), call.x(0), _broadcast_operand(call, "scale"))
    if not call.flag("bias_term"):
        return y
    learned = len(call.tensors) == 1
    return call.emit(ops.Add(), y, _learned_constant(call, 1 if learned else 0, "bias"))


def bias(call: CaffeCall) -> Tensor:
    return call.emit(ops.Add(), call.x(0), _broadcast_operand(call, "bias"))


def _broadcast_operand(call: CaffeCall, what: str) -> Tensor:
    """The second bottom or the learned constant, reshaped to broadcast."""
    if len(call.tensors) == 1:
        return _learned_constant(call, 0, what)
    x, second = call.x(0), call.x(1)
    axis = call.axis(x) if second.shape else 0
    end = axis + len(second.shape)
    if x.shape[axis:end] != second.shape:
        raise ShapeError(
            f"expected {what} to fit {list(x.shape)} from axis {axis} on, "
            f"found {list(second.shape)}"
        )
    return call.reshape(second, (*second.shape, *(1,) * (len(x.shape) - end)))


def _learned_constant(call: CaffeCall, index: int, what: str) -> Tensor:
    x = call.x(0)
    axis = call.axis(x)
    count = call.integer("num_axes", -1) if len(call.tensors) == 1 else len(call.x(1).shape)
    end = len(x.shape) if count == -1 else axis + count
    if end > len(x.shape):
        raise ShapeError(f"expected axes of {list(x.shape)}, found {count} from axis {axis} on")
    value = call.blob(index, x.shape[axis:end], what)
    return call.floats(value.reshape(*value.shape, *(1,) * (len(x.shape) - end)))


def batch_norm(call: CaffeCall) -> Tensor:
    """(x − mean) / √(variance + eps). The blobs hold mean and variance times a common factor."""
    x, eps = call.only(), call.number("eps")
    channels = _channel_shape(x)
    if call.has("use_global_stats") and not call.flag("use_global_stats"):
        axes = (0, *range(2, len(x.shape)))
        return normalized(call, x, axes, eps)[0]
    total_weight = float(call.blob(2, (1,), "factor")[0])
    inverse = 0.0 if total_weight == 0 else 1 / total_weight
    with np.errstate(all="ignore"):
        mean, variance = (call.blob(i, channels[:1], w).astype(np.float64) * inverse
                          for i, w in ((0, "means"), (1, "variances")))  # fmt: skip
        factor = 1 / np.sqrt(variance + eps)
        shift = -mean * factor
        if call.flag("scale_bias"):
            learned, offset = (call.blob(i, channels[:1], w).astype(np.float64)
                               for i, w in ((3, "scales"), (4, "biases")))  # fmt: skip
            factor, shift = factor * learned, shift * learned + offset
        finite = np.isfinite(np.concatenate([factor, shift]).astype(np.float32))
    if not finite.all():
        raise ShapeError(
            "expected finite numbers and variances of at least 0, found no such in channel "
            f"{int(np.argmin(finite)) % len(factor)}"
        )
    y = call.emit(ops.Mul(), x, call.floats(factor.reshape(channels)))
    return call.emit(ops.Add(), y, call.floats(shift.reshape(channels)))


def mvn(call: CaffeCall) -> Tensor:
    """(x − mean) / (√variance + eps), over each image or each channel."""
    x = call.only()
    need_rank(x, 4)
    axes = (1, 2, 3) if call.flag("across_channels") else (2, 3)
    centered = call.emit(ops.Sub(), x, average(call, x, axes, True))
    if not call.flag("normalize_variance"):
        return centered
    variance = average(call, call.emit(ops.Mul(), centered, centered), axes, True)
    deviation = _scale_and_shift(call, call.emit(ops.Sqrt(), variance), 1, call.number("eps"))
    return call.emit(ops.Div(), centered, deviation)


def normalize(call: CaffeCall) -> Tensor:
    """x / √(Σ x² + eps) · scale, over an image or each of its pixels (SSD)."""
    x = call.only()
    need_rank(x, 4)
    axes = (1, 2, 3) if call.flag("across_spatial") else (1,)
    count = 1 if call.flag("channel_shared") else x.shape[1]
    factor = call.blob(0, (count,), "scale")
    square = total(call, ops.ReduceSum, call.emit(ops.Mul(), x, x), axes, True)
    norm = call.emit(ops.Sqrt(), _scale_and_shift(call, square, 1, call.number("eps")))
    y = call.emit(ops.Mul(), x, call.emit(ops.Reciprocal(), norm))
    return call.emit(ops.Mul(), y, call.floats(factor.reshape(count, 1, 1)))


def softmax(call: CaffeCall) -> Tensor:
    x = call.only()
    axis = call.axis(x)
    return call.back(call.emit(ops.Softmax(), call.last(x, axis)), axis)


def arg_max(call: CaffeCall) -> Tensor:
    """Indices are floats, like all Caffe values."""
    x, valued = call.only(), call.flag("out_max_val")
    if call.integer("top_k", 1) != 1:
        raise ShapeError(f"expected top_k of 1, found {call.integer('top_k')}")
    along = call.has("axis")
    rows = x if along else call.reshape(x, (x.shape[0], 1, x.elements // x.shape[0]))
    axis = call.axis(x) if along else 2
    largest = call.emit(ops.ReduceMax((axis,), True), rows) if valued else rows
    if along and valued:
        return largest
    found = call.convert(call.emit(ops.ArgExtreme(axis), rows), DType.F32)
    if along or not valued:
        return found
    return call.emit(ops.Concat(1), found, largest)


def reduction(call: CaffeCall) -> Tensor:
    x, kind = call.only(), call.choice("operation")
    axis = call.axis(x)
    axes = tuple(range(axis, len(x.shape)))
    if kind == "ASUM":
        x = call.emit(ops.Abs(), x)
    if kind == "SUMSQ":
        x = call.emit(ops.Mul(), x, x)
    reduce = average(call, x, axes, False) if kind == "MEAN" else total(
        call, ops.ReduceSum, x, axes, False
    )  # fmt: skip
    return _scale_and_shift(call, reduce, call.number("coeff"), 0)


def inner_product(call: CaffeCall) -> Tensor:
    x = call.only()
    axis, outputs = call.axis(x), call.integer("num_output", 1)
    depth = math.prod(x.shape[axis:])
    if call.flag("transpose"):
        w = call.blob(0, (depth, outputs), "weights").T
    else:
        w = call.blob(0, (outputs, depth), "weights")
    b = call.floats(call.blob(1, (outputs,), "bias")) if call.flag("bias_term") else None
    rows = call.reshape(x, (math.prod(x.shape[:axis]), depth))
    y = call.emit(ops.FullyConnected(), rows, call.floats(w), b)
    return call.reshape(y, (*x.shape[:axis], outputs))
