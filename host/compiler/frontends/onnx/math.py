"""Import of ONNX element-wise operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.types import BFLOAT16, DTYPES, INPUT_TYPES
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import UNSIGNED
from edgekit.host.compiler.ir.types import Activation, DType, Operator, ShapeError, Tensor

Row = Callable[[OnnxCall], Tensor | list[Tensor]]


def function(op: Operator) -> Row:
    """A handler for an operator with one operand and no attributes."""
    return lambda call: call.emit(op, call.x(0))


def attributed(function: type[ops.Function]) -> Row:
    """A handler for an operator with one operand; the attributes are the op's parameters."""

    def build(call: OnnxCall) -> Tensor:
        defaults = vars(function())
        values = {name: call.number(name, value) for name, value in defaults.items()}
        return call.emit(function(**values), call.x(0))

    return build


def binary(op: Operator, swapped: bool = False) -> Row:
    """A handler for two operands; `swapped` reverses their order."""

    def build(call: OnnxCall) -> Tensor:
        a, b = _legacy_broadcast(call)
        return call.emit(op, *((b, a) if swapped else (a, b)))

    return build


def logical(op: Operator, decisive: bool) -> Row:
    """And or Or, folded if a constant operand is `decisive` everywhere or nowhere."""

    def build(call: OnnxCall) -> Tensor:
        made = call.emit(op, *_legacy_broadcast(call))
        a, b = call.x(0), call.x(1)
        for known, other in ((a, b), (b, a)):
            if known.data is None or made.data is not None or not known.elements:
                continue
            if np.all(known.data == decisive):
                return call.filled(made.shape, decisive, np.bool_)
            if other.shape == made.shape and np.all(known.data != decisive):
                return other
        return made

    return build


def _legacy_broadcast(call: OnnxCall) -> tuple[Tensor, Tensor]:
    """Both operands; before opset 7, the second is aligned with `axis` of the first."""
    a, b = call.x(0), call.x(1)
    if call.opset >= 7 or not call.has("axis") or len(b.shape) > len(a.shape):
        return a, b
    behind = len(a.shape) - call.axis(call.integer("axis"), len(a.shape)) - len(b.shape)
    return a, call.reshape(b, (*b.shape, *(1,) * max(behind, 0)))


def variadic(op: Operator) -> Row:
    def build(call: OnnxCall) -> Tensor:
        total, *rest = call.all()
        for x in rest:
            total = call.emit(op, total, x)
        return total

    return build


def mean_of(call: OnnxCall) -> Tensor:
    total = variadic(ops.Add())(call)
    assert isinstance(total, Tensor)
    return call.emit(ops.Div(), total, call.builder.floats(len(call.values)))


def sub(call: OnnxCall) -> Tensor:
    a, b = _legacy_broadcast(call)
    if b.data is not None and b.dtype is DType.F32:
        return call.emit(ops.Add(), a, call.constant(-b.data))  # one form for passes to match
    return call.emit(ops.Sub(), a, b)


def div(call: OnnxCall) -> Tensor:
    a, b = _legacy_broadcast(call)
    return call.emit(ops.Div(), a, b)


def power(call: OnnxCall) -> Tensor:
    x, exponent = _legacy_broadcast(call)
    result = x.dtype
    wide = call.convert(x, DType.F32)
    data = exponent.data
    if data is not None and data.size == 1 and float(data.reshape(-1)[0]) in (2.0, 0.5):
        square = float(data.reshape(-1)[0]) == 2.0
        y = call.emit(ops.Mul(), wide, wide) if square else call.emit(ops.Sqrt(), wide)
        rank = max(len(x.shape), data.ndim)
        y = call.reshape(y, (1,) * (rank - len(x.shape)) + x.shape)
    else:
        y = call.emit(ops.Pow(), wide, call.convert(exponent, DType.F32))
    return call.convert(y, result)


def modulo(call: OnnxCall) -> Tensor:
    return call.emit(ops.Modulo(bool(call.integer("fmod", 0))), call.x(0), call.x(1))


def clip(call: OnnxCall) -> Tensor:
    x = call.x(0)
    low, high = _clip_bound(call, 1, -math.inf), _clip_bound(call, 2, math.inf)
    if low is None or high is None or x.dtype is not DType.F32:
        for i, op in ((1, ops.Maximum()), (2, ops.Minimum())):
            bound = call.maybe(i)
            x = x if bound is None else call.emit(op, x, bound)
        return x
    for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1):
        if activation.bounds == (low, high):
            return call.emit(ops.Clamp(activation), x)
    if high < low:
        low = high  # as ONNX specifies
    return call.emit(ops.Clip(low, high), x)


def _clip_bound(call: OnnxCall, index: int, default: float) -> float | None:
    """None if the bound is computed."""
    bound = call.maybe(index)
    if bound is None:
        return default
    if bound.elements != 1:
        raise ShapeError(f"expected one number as bound, found {bound.elements}")
    return None if bound.data is None else float(bound.data.reshape(-1)[0])


def relu(call: OnnxCall) -> Tensor:
    x = call.x(0)
    if x.dtype is DType.F32:
        return call.emit(ops.Clamp(Activation.RELU), x)
    return call.emit(ops.Maximum(), x, call.scalar(0, x))


def prelu(call: OnnxCall) -> Tensor:
    x, slope = call.x(0), call.x(1)
    per_channel = len(slope.shape) == 1 and len(x.shape) > 1 and slope.shape[0] == x.shape[1]
    if per_channel and (call.opset < 7 or x.shape[1] != x.shape[-1]):
        slope = call.reshape(slope, (slope.shape[0], *(1,) * (len(x.shape) - 2)))
    if not x.dtype.is_float:
        below = call.emit(ops.Less(), x, call.scalar(0, x))
        return call.emit(ops.Where(), below, call.emit(ops.Mul(), x, slope), x)
    return call.emit(ops.PRelu(), x, slope)


def absolute(call: OnnxCall) -> Tensor:
    x = call.x(0)
    return x if x.dtype in UNSIGNED else call.emit(ops.Abs(), x)


def sign(call: OnnxCall) -> Tensor:
    x = call.x(0)
    if x.dtype in UNSIGNED:
        return call.emit(ops.Minimum(), x, call.scalar(1, x))
    return call.emit(ops.Sign(), x)


def elu(call: OnnxCall) -> Tensor:
    return call.emit(ops.Elu(call.number("alpha", 1.0)), call.x(0))


def selu(call: OnnxCall) -> Tensor:
    alpha, gamma = 1.67326319217681884765625, 1.05070102214813232421875
    if call.opset < 6:
        alpha, gamma = 1.6732, 1.0507
    return call.emit(ops.Elu(call.number("alpha", alpha), call.number("gamma", gamma)), call.x(0))


def celu(call: OnnxCall) -> Tensor:
    alpha = call.number("alpha", 1.0)
    if alpha == 0:
        raise ShapeError("expected an alpha that is not 0, found 0")
    scaled = call.emit(ops.Mul(), call.x(0), call.builder.floats(1 / alpha))
    y = call.emit(ops.Elu(), scaled)
    positive = call.emit(ops.Clamp(Activation.RELU), call.x(0))
    below = call.emit(ops.Clip(-math.inf, 0.0), y)
    return call.emit(ops.Add(), positive, call.emit(ops.Mul(), below, call.builder.floats(alpha)))


def mish(call: OnnxCall) -> Tensor:
    x = call.x(0)
    return call.emit(ops.Mul(), x, call.emit(ops.Tanh(), call.emit(ops.Softplus(), x)))


def swish(call: OnnxCall) -> Tensor:
    x = call.x(0)
    inner = call.emit(ops.Mul(), x, call.builder.floats(call.number("alpha", 1.0)))
    return call.emit(ops.Mul(), x, call.emit(ops.Logistic(), inner))


def softsign(call: OnnxCall) -> Tensor:
    x = call.x(0)
    below = call.emit(ops.Add(), call.emit(ops.Abs(), x), call.builder.floats(1.0))
    return call.emit(ops.Div(), x, below)


def thresholded_relu(call: OnnxCall) -> Tensor:
    x = call.x(0)
    limit = call.builder.floats(call.number("alpha", 1.0))
    above = call.emit(ops.Less(), limit, x)
    return call.emit(ops.Where(), above, x, call.builder.floats(0.0))


def gelu(call: OnnxCall) -> Tensor:
    x = call.x(0)
    if call.text("approximate", "none") == "none":
        return call.emit(ops.Gelu(), x)
    cube = call.emit(ops.Mul(), call.emit(ops.Mul(), x, x), x)
    inner = call.emit(ops.Add(), x, call.emit(ops.Mul(), cube, call.builder.floats(0.044715)))
    scaled = call.emit(ops.Mul(), inner, call.builder.floats(math.sqrt(2 / math.pi)))
    gate = call.emit(ops.Add(), call.emit(ops.Tanh(), scaled), call.builder.floats(1.0))
    return call.emit(ops.Mul(), call.emit(ops.Mul(), x, gate), call.builder.floats(0.5))


def where(call: OnnxCall) -> Tensor:
    return call.emit(ops.Where(), call.x(0), call.x(1), call.x(2))


def cast(call: OnnxCall) -> Tensor:
    number = call.integer("to") if call.opset >= 6 else _old_cast(call)
    return _cast(call, call.dtype(number), number == BFLOAT16)


def cast_like(call: OnnxCall) -> Tensor:
    like = call.x(1)
    return _cast(call, like.dtype, like.name in call.bfloat16)


def _cast(call: OnnxCall, to: DType, bfloat16: bool) -> Tensor:
    y = call.convert(call.x(0), to)
    if bfloat16:
        y = call.emit(ops.RoundBfloat16(), y)
        call.bfloat16.add(y.name)
    elif y.name in call.bfloat16:  # the value is f32 from here on, under a new name
        y = call.emit(ops.Reshape(y.shape), y)
    return y


def _old_cast(call: OnnxCall) -> int:
    wanted = INPUT_TYPES.get(call.text("to"))
    return next((number for number, kind in DTYPES.items() if kind is wanted), 0)
