"""Import of ONNX operators that draw random numbers."""

from __future__ import annotations

import struct

from edgekit.host.compiler.frontends.common import random
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.types import BFLOAT16
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, Tensor

_FLOAT = 1  # ONNX's number of f32
_INT32 = 6


def random_normal(call: OnnxCall) -> Tensor:
    return _typed(call, _normal(call, _shape(call)), None)


def random_normal_like(call: OnnxCall) -> Tensor:
    return _typed(call, _normal(call, call.x(0).shape), call.x(0))


def random_uniform(call: OnnxCall) -> Tensor:
    return _typed(call, _uniform(call, _shape(call)), None)


def random_uniform_like(call: OnnxCall) -> Tensor:
    return _typed(call, _uniform(call, call.x(0).shape), call.x(0))


def bernoulli(call: OnnxCall) -> Tensor:
    """1 with the probability in x, else 0; ONNX Runtime has 0 and 1 the other way around."""
    x = call.x(0)
    drawn = random.uniform(call, x.shape, _seed(call))
    return _typed(call, call.emit(ops.Less(), drawn, call.convert(x, DType.F32)), x)


def multinomial(call: OnnxCall) -> Tensor:
    drawn = random.multinomial(call, call.x(0), call.integer("sample_size", 1), _seed(call))
    return call.convert(drawn, call.dtype(call.integer("dtype", _INT32)))


def dropped(call: OnnxCall, x: Tensor, ratio: float) -> list[Tensor]:
    """Dropout in training mode: the result, and a mask of what is kept."""
    kept = call.emit(
        ops.LessOrEqual(), call.builder.floats(ratio), random.uniform(call, x.shape, _seed(call))
    )
    scaled = call.emit(ops.Mul(), x, call.scalar(1 / (1 - ratio) if ratio < 1 else 0.0, x))
    return [call.emit(ops.Where(), kept, scaled, call.scalar(0, x)), kept]


def _shape(call: OnnxCall) -> Shape:
    shape = call.list("shape")
    if any(d < 0 for d in shape):
        raise ShapeError(f"expected sizes of at least 0, found {list(shape)}")
    return shape


def _seed(call: OnnxCall) -> int | None:
    """The bits of the attribute, whose values need not be integers."""
    if not call.has("seed"):
        return None
    return int(struct.unpack("<I", struct.pack("<f", call.number("seed")))[0])


def _normal(call: OnnxCall, shape: Shape) -> Tensor:
    drawn = random.normal(call, shape, _seed(call))
    return _affine(call, drawn, call.number("scale", 1.0), call.number("mean", 0.0))


def _uniform(call: OnnxCall, shape: Shape) -> Tensor:
    low, high = call.number("low", 0.0), call.number("high", 1.0)
    return _affine(call, random.uniform(call, shape, _seed(call)), high - low, low)


def _affine(call: OnnxCall, x: Tensor, scale: float, offset: float) -> Tensor:
    if scale != 1:
        x = call.emit(ops.Mul(), x, call.builder.floats(scale))
    return x if offset == 0 else call.emit(ops.Add(), x, call.builder.floats(offset))


def _typed(call: OnnxCall, y: Tensor, like: Tensor | None) -> Tensor:
    """`y` in the type of the attribute, else of `like`, else f32."""
    number = call.integer("dtype", 0)
    if number == BFLOAT16 or (not number and like is not None and like.name in call.bfloat16):
        y = call.emit(ops.RoundBfloat16(), call.convert(y, DType.F32))
        call.bfloat16.add(y.name)
        return y
    kind = call.dtype(number or _FLOAT) if number or like is None else like.dtype
    return call.convert(y, kind)
