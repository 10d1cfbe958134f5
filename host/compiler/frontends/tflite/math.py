"""Import of TensorFlow Lite's element-wise operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops, quantized_elementwise
from edgekit.host.compiler.ir.checks import INTEGERS, equal_quantization
from edgekit.host.compiler.ir.traits import OnQuantized
from edgekit.host.compiler.ir.types import Activation, DType, Operator, ShapeError, Tensor

Build = Callable[[TfliteCall], Tensor]


def unary(op: Operator) -> Build:
    """A handler for one operand without options."""
    return lambda call: call.result(op, call.tensor(0, "input"))


def binary(op: Operator, swapped: bool = False) -> Build:
    """A handler for two operands; `swapped` reverses their order.

    Operators without a rule for quantized get stored values, whatever their scales, as in LiteRT.
    """

    def build(call: TfliteCall) -> Tensor:
        a, b = call.tensor(0, "first operand"), call.tensor(1, "second operand")
        if op.on_quantized is OnQuantized.NEVER and not equal_quantization(a, b):
            a, b = (call.plain(i, t.dtype) for i, t in enumerate((a, b)))
            return call.made(call.emit(op, *((b, a) if swapped else (a, b))))
        return call.result(op, *((b, a) if swapped else (a, b)))

    return build


def add(call: TfliteCall) -> Tensor:
    return binary(ops.Add(call.activation()))(call)


def mul(call: TfliteCall) -> Tensor:
    return binary(ops.Mul(call.activation()))(call)


def plain(op: Operator) -> Build:
    """A handler for two operands without quantization, which LiteRT would ignore."""

    def build(call: TfliteCall) -> Tensor:
        if any(t.is_quantized for t in call.all()):
            raise ShapeError("expected unquantized values, found quantized ones")
        return binary(op)(call)

    return build


def comparison(op: ops.Comparison, swapped: bool = False) -> Build:
    """Compares the stored values of s16 operands, as LiteRT does except for equality."""

    def build(call: TfliteCall) -> Tensor:
        a, b = call.tensor(0, "first operand"), call.tensor(1, "second operand")
        if a.dtype is b.dtype is DType.I16:
            scaled = isinstance(op, ops.Equal) and a.is_quantized and b.is_quantized
            a, b = (
                _to_common_scale(call, t) if scaled else call.convert(t, DType.I32) for t in (a, b)
            )
        return call.result(op, *((b, a) if swapped else (a, b)))

    return build


def _to_common_scale(call: TfliteCall, x: Tensor) -> Tensor:
    """Maps s16 values to a common unit with a lookup table."""
    values = np.arange(-(1 << 15), 1 << 15)
    table = call.constant(quantized_elementwise.comparable(values, x).astype(np.int32))
    place = call.emit(
        ops.Add(), call.convert(x, DType.I32), call.constant(np.array(1 << 15, np.int32))
    )
    return call.emit(ops.Gather(0), table, place)


def activated(op: Operator) -> Build:
    """A binary operator with its activation as a separate node."""

    def build(call: TfliteCall) -> Tensor:
        activation = call.activation()
        y = binary(op)(call)
        return y if activation is Activation.NONE else call.result(ops.Clamp(activation), y)

    return build


def negated(op: ops.Comparison) -> Build:
    def build(call: TfliteCall) -> Tensor:
        return call.emit(ops.Not(), comparison(op)(call))

    return build


def add_n(call: TfliteCall) -> Tensor:
    total, *rest = call.all()
    for x in rest:
        total = call.result(ops.Add(), total, x)
    return total


def squared_difference(call: TfliteCall) -> Tensor:
    """In f32 two operators, which passes recognize in normalizations."""
    if call.tensor(0, "first operand").dtype is not DType.F32:
        return binary(ops.SquaredDifference())(call)
    difference = binary(ops.Sub())(call)
    return call.result(ops.Mul(), difference, difference)


def square(call: TfliteCall) -> Tensor:
    x = call.tensor(0, "input")
    return call.result(ops.Mul(), x, x)


def rsqrt(call: TfliteCall) -> Tensor:
    """In f32 two operators, which passes recognize in normalizations."""
    x = call.tensor(0, "input")
    if x.dtype is not DType.F32:
        return call.result(ops.Rsqrt(), x)
    root = call.emit(ops.Sqrt(), x)
    return call.result(ops.Reciprocal(), root)


def leaky_relu(call: TfliteCall) -> Tensor:
    return call.result(ops.LeakyRelu(float(call.option("Alpha"))), call.tensor(0, "input"))


def prelu(call: TfliteCall) -> Tensor:
    """Slopes for 16-bit inputs are 8-bit."""
    x, slope = call.tensor(0, "input"), call.tensor(1, "slope")
    if x.is_quantized and x.dtype is DType.I16:
        if slope.data is None or slope.dtype is not DType.I8:
            raise ShapeError(
                f"expected constant slopes of type s8 for s16, found {slope.dtype.value}"
            )
        slope = call.quantized(slope.data.astype(np.int16), slope.quant)
    return call.result(ops.PRelu(), x, slope)


def select(call: TfliteCall) -> Tensor:
    """SELECT's condition may be a vector along the first axis of the values."""
    condition, a, b = (call.tensor(i, "operand") for i in range(3))
    if len(condition.shape) == 1 and len(a.shape) > 1 and call.operator.name == "SELECT":
        condition = call.reshape(condition, (*condition.shape, *(1,) * (len(a.shape) - 1)))
    return call.result(ops.Where(), condition, a, b)


def gelu(call: TfliteCall) -> Tensor:
    return call.result(
        ops.GeluTanh() if call.option("Approximate") else ops.Gelu(), call.tensor(0, "input")
    )


def cast(call: TfliteCall) -> Tensor:
    """Floats outside the integer range saturate."""
    x, to = call.tensor(0, "input"), call.out_dtype
    if x.dtype in (DType.F32, DType.F16) and to in INTEGERS:
        return call.emit(ops.Convert(to, saturate=True), x)
    return call.convert(x, to)


def bit_cast(call: TfliteCall) -> Tensor:
    return call.emit(ops.BitCast(call.out_dtype), call.tensor(0, "input"))


def dequantize(call: TfliteCall) -> Tensor:
    source = call.tensor(0, "input")
    if 0 in call.by_block:
        return call.convert(source, call.out_dtype)
    if source.dtype is not DType.F16 and source.quant is None:
        raise ShapeError(f"expected f16 or a quantized input, found {source.dtype.value}")
    return call.result(ops.Cast(call.out_dtype), source)


def quantize(call: TfliteCall) -> Tensor:
    return call.result(ops.Quantize(call.out_dtype), call.tensor(0, "input"))


def fake_quant(call: TfliteCall) -> Tensor:
    """x rounded to 2^bits levels from about `Min` to `Max`, one of which is exactly 0."""
    x, bits = call.tensor(0, "input"), call.option("NumBits")
    low, high = np.float32(call.option("Min")), np.float32(call.option("Max"))
    if not 2 <= bits <= 16 or not low <= 0 <= high or low == high:
        raise ShapeError(
            f"expected 2 to 16 bits and a range around 0, found {bits}, {low} to {high}"
        )
    if call.option("NarrowRange"):
        raise ShapeError("expected the full range of quantized values, found a narrow one")
    last = (1 << bits) - 1
    step = (high - low) / np.float32(last)
    zero = np.clip(np.floor(np.float32(0.5) - low / step), 0, last)
    start, end = (np.float32(edge - zero) * step for edge in (0, last))
    shifted = call.emit(ops.Clip(float(start), float(end)), x)
    shifted = call.emit(ops.Sub(), shifted, call.scalar(float(start), x))
    quantized = call.emit(ops.Mul(), shifted, call.scalar(float(1 / step), x))
    quantized = call.emit(ops.Floor(), call.emit(ops.Add(), quantized, call.scalar(0.5, x)))
    grid = call.emit(ops.Mul(), quantized, call.scalar(float(step), x))
    return call.emit(ops.Add(), grid, call.scalar(float(start), x))
