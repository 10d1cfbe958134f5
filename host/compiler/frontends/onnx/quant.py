"""Import of ONNX's quantized operators: Q/DQ pairs and integer products.

Integer products are exact: they accumulate in s32, or in f32 over few enough terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.integer_conv import integer_sums
from edgekit.host.compiler.frontends.onnx.product import product
from edgekit.host.compiler.frontends.onnx.volume import conv
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.quantization import quantized_range, zero_point_of
from edgekit.host.compiler.ir.types import Array, DType, Quant, ShapeError, Tensor

_QUANTIZED_TYPES = (DType.U8, DType.I8, DType.U16, DType.I16)
_BYTES = (DType.I8, DType.U8)
_EXACT = 1 << 24  # f32 is exact for integers below this
_Made = TypeVar("_Made")


def _scale_and_zero(call: OnnxCall, index: int) -> Quant:
    """Constant scales from input `index` and zero points (default 0) from `index + 1`."""
    with np.errstate(over="ignore"):  # an infinite scale is refused below
        scale = np.atleast_1d(call.value(index, "scale")).astype(np.float32)
    zero = np.zeros(1, np.int64)
    if call.maybe(index + 1) is not None:
        given = np.atleast_1d(call.value(index + 1, "zero point"))
        wide = given.astype(np.float64)
        if not ((np.abs(wide) < _EXACT) & (wide == np.floor(wide))).all():  # false for NaN
            raise ShapeError("expected integer zero points, found fractions or larger values")
        zero = given.astype(np.int64)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ShapeError(f"expected positive finite scales, found {float(scale.min())}")
    if scale.ndim != 1 or zero.size not in (1, scale.size):
        raise ShapeError(f"expected scales per tensor or axis, found {list(scale.shape)}")
    return Quant(scale, np.broadcast_to(zero.reshape(-1), scale.shape).astype(np.int64))


def _quantized_dtype(call: OnnxCall, index: int) -> DType:
    """The quantized type: that of the zero point, else `output_dtype`, else u8."""
    zero = call.maybe(index)
    kind = DType.U8 if zero is None else zero.dtype
    if zero is None and call.integer("output_dtype", 0):
        kind = call.dtype(call.integer("output_dtype"))
    if kind not in _QUANTIZED_TYPES:
        raise ShapeError(f"expected 8- or 16-bit quantized values, found {kind.value}")
    return kind


def _align_to_axis(values: Array, axis: int, rank: int) -> Array:
    return values if values.size == 1 else values.reshape(-1, *(1,) * (rank - 1 - axis))


def quantize_linear(call: OnnxCall) -> Tensor:
    """8-bit quantization with one constant scale is one operator; all else is composed."""
    x, kind = call.convert(call.x(0), DType.F32), _quantized_dtype(call, 2)
    if _is_known(call) and call.x(1).elements == 1 and kind.is_quantized:
        return call.emit(ops.Quantize(kind, True), x, quant=_scale_and_zero(call, 1))
    steps = call.emit(
        ops.RoundEven(), call.emit(ops.Div(), x, _broadcast_param(call, call.x(1), x))
    )
    if call.maybe(2) is not None:
        zero = _broadcast_param(call, call.convert(call.x(2), DType.F32), x)
        steps = call.emit(ops.Add(), steps, zero)
    low, high = quantized_range(kind)
    return call.convert(call.emit(ops.Clip(low, high), steps), kind)


def _is_known(call: OnnxCall) -> bool:
    """Whether scales and zero points are constant and not blockwise."""
    constant = all(call.x(i).data is not None for i in (1, 2) if call.maybe(i) is not None)
    return constant and len(call.x(1).shape) < 2


def _broadcast_param(call: OnnxCall, t: Tensor, x: Tensor) -> Tensor:
    """Scales or zero points (per tensor, per axis or blockwise), shaped to broadcast to x."""
    if t.elements == 1:
        return call.reshape(t, ())
    axis = call.axis(call.integer("axis", 1), len(x.shape))
    if len(t.shape) == 1 and t.shape[0] == x.shape[axis]:
        return call.reshape(t, (*t.shape, *(1,) * (len(x.shape) - 1 - axis)))
    blocks = t.shape[axis] if len(t.shape) == len(x.shape) else 0
    size = max(call.integer("block_size", 0) or -(-x.shape[axis] // max(blocks, 1)), 1)
    wanted = (*x.shape[:axis], -(-x.shape[axis] // size), *x.shape[axis + 1 :])
    if t.shape != wanted:
        raise ShapeError(
            f"expected scales for {list(x.shape)} along axis {axis}, found {list(t.shape)}"
        )
    block = np.arange(x.shape[axis], dtype=np.int64) // size
    return call.emit(ops.Gather(axis), t, call.constant(block))


def _need_length(x: Tensor, axis: int, quant: Quant) -> None:
    if x.shape[axis] != quant.scale.size:
        raise ShapeError(
            f"expected {x.shape[axis]} scales for axis {axis} of {list(x.shape)}, "
            f"found {quant.scale.size}"
        )


def dequantize_linear(call: OnnxCall) -> Tensor:
    x = call.x(0)
    if _is_known(call):
        quant = _scale_and_zero(call, 1)
        x = _as_stated(call, x, quant)
        if x.data is not None and x.dtype in (DType.I8, DType.U8):
            return _dequantized_constant(call, x, x.data, quant)
        if x.quant is not None and _equal_scalar_quant(x.quant, quant):
            return call.emit(ops.Cast(), x)
    wide = call.convert(x, DType.F32)
    zero = call.maybe(2)
    if zero is not None and (zero.data is None or zero.data.any()):
        moved = _broadcast_param(call, call.convert(zero, DType.F32), x)
        wide = call.emit(ops.Add(), wide, call.emit(ops.Neg(), moved))
    return call.emit(ops.Mul(), wide, _broadcast_param(call, call.x(1), x))


def _as_stated(call: OnnxCall, x: Tensor, quant: Quant) -> Tensor:
    """`x` with the quantization that its reader states, if nothing in the graph quantized it: a
    graph input of stored values, or those that an integer operator made."""
    known = x.data is not None or x.quant is not None or x.dtype not in (DType.I8, DType.U8)
    return x if known or quant.per_channel else call.emit(ops.Reshape(x.shape), x, quant=quant)


def on_quantized_values(
    row: Callable[[OnnxCall], _Made], every: bool = False
) -> Callable[[OnnxCall], _Made | Tensor]:
    """Wraps a handler that only moves or selects values: an input of known quantization is
    dequantized before and quantized after, and a pass reduces that to a move of quantized values.
    Other inputs are unchanged. `every`: all inputs are values; else only the first. Constants and
    graph inputs of bytes are quantized as the values they join."""

    def build(call: OnnxCall) -> _Made | Tensor:
        given = call.all() if every else [call.maybe(0)]
        computed = [t for t in given if t is not None and t.data is None]
        x = next((t for t in computed if t.quant is not None), None)
        if (
            x is None
            or len(call.node.outputs) > 1
            or not all(_is_quantized_like(t, x) or _joins(t, x) for t in given)
        ):
            return row(call)
        reals = [_real(call, t, x) for t in given if t is not None]
        y = row(replace(call, values=[*reals, *call.values[len(reals) :]]))
        if y is reals[0] and given[0] is x:
            return x
        assert isinstance(y, Tensor)
        return call.emit(ops.Quantize(x.dtype, True), y, quant=x.quant)

    return build


def pad_quantized(row: Callable[[OnnxCall], Tensor]) -> Callable[[OnnxCall], Tensor]:
    """`on_quantized_values` for Pad if the padding value is the zero point."""
    moved = on_quantized_values(row)

    def build(call: OnnxCall) -> Tensor:
        x, value = call.x(0), call.maybe(2)
        if not x.is_quantized:
            return row(call)
        if call.text("mode", "constant") == "constant":
            quantized = (0.0,) if value is None else call.numbers(2, "value")
            if quantized != (zero_point_of(x),):
                return row(call)
            call = replace(call, values=[*call.values[:2], None, *call.values[3:]])
        return moved(call)

    return build


def _is_quantized_like(t: Tensor | None, x: Tensor) -> bool:
    """Whether t is computed and has the same type and quantization as x."""
    if t is None or t.data is not None or not t.is_quantized or t.quant is None or x.quant is None:
        return False
    return t.dtype is x.dtype and _equal_scalar_quant(t.quant, x.quant)


def _joins(t: Tensor | None, x: Tensor) -> bool:
    """Whether t are bytes, constant or of no known quantization, that can be quantized like x."""
    if t is None or x.quant is None or x.quant.per_channel or not t.dtype is x.dtype in _BYTES:
        return False
    return t.data is not None or t.quant is None


def _real(call: OnnxCall, t: Tensor, x: Tensor) -> Tensor:
    if x.quant is None:
        return call.emit(ops.Cast(), t)
    if t.data is None:
        return call.emit(ops.Cast(), _as_stated(call, t, x.quant))
    return _dequantized_constant(call, t, t.data, x.quant)


def _dequantized_constant(call: OnnxCall, x: Tensor, quantized: Array, quant: Quant) -> Tensor:
    """A dequantized 8-bit constant that keeps its quantization (as s8), so that a pass can make
    integer operators of it."""
    if x.dtype is DType.U8:
        quantized = quantized.astype(np.int64) - 128
        quant = Quant(quant.scale, quant.zero_point - 128)
    axis = 0
    if quant.per_channel:
        axis = call.axis(call.integer("axis", 1), len(x.shape))
        _need_length(x, axis, quant)
    zero = _align_to_axis(quant.zero_point.astype(np.float32), axis, len(x.shape))
    real = (quantized - zero) * _align_to_axis(quant.scale, axis, len(x.shape))
    real = real.astype(np.float32).reshape(x.shape)
    return call.quantized(real, Quant(quant.scale, quant.zero_point, axis))


def _equal_scalar_quant(a: Quant, b: Quant) -> bool:
    return (
        a.scale.size == b.scale.size == 1
        and a.scale[0] == b.scale[0]
        and a.zero_point[0] == b.zero_point[0]
    )


@dataclass(frozen=True, eq=False)
class _Dynamic:
    """x quantized dynamically: x ≈ (quantized − point) · scale. `quantized` and `point` are in
    f32."""

    quantized: Tensor
    scale: Tensor
    point: Tensor


def _quantize_dynamic(call: OnnxCall, x: Tensor) -> _Dynamic:
    """x quantized to u8 over its own range, extended to include 0."""
    axes = tuple(range(len(x.shape)))
    zero, most = call.builder.floats(0.0), call.builder.floats(255.0)
    high = call.emit(ops.Maximum(), call.emit(ops.ReduceMax(axes), x), zero)
    low = call.emit(ops.Minimum(), call.emit(ops.ReduceMin(axes), x), zero)
    span = call.emit(ops.Sub(), high, low)
    empty = call.emit(ops.Equal(), span, zero)
    # For an all-zero x, ONNX defines a scale of 0, but ONNX Runtime uses 1.
    scale = call.emit(
        ops.Where(), empty, call.builder.floats(1.0), call.emit(ops.Div(), span, most)
    )
    start = call.emit(ops.Div(), call.emit(ops.Neg(), low), scale)
    point = call.emit(ops.Clip(0.0, 255.0), call.emit(ops.RoundEven(), start))
    steps = call.emit(ops.RoundEven(), call.emit(ops.Div(), x, scale))
    quantized = call.emit(ops.Clip(0.0, 255.0), call.emit(ops.Add(), steps, point))
    return _Dynamic(quantized, scale, point)


def dynamic_quantize_linear(call: OnnxCall) -> list[Tensor]:
    """[quantized values, scale, zero point]; u8."""
    found = _quantize_dynamic(call, call.x(0))
    return [
        call.convert(found.quantized, DType.U8),
        found.scale,
        call.convert(found.point, DType.U8),
    ]


def rounded(call: OnnxCall, x: Tensor) -> Tensor:
    """x quantized dynamically to u8 and dequantized, as products with quantized weights see it."""
    found = _quantize_dynamic(call, x)
    return call.emit(ops.Mul(), call.emit(ops.Sub(), found.quantized, found.point), found.scale)


def without_zero(call: OnnxCall, x: Tensor, zero: Tensor | None, kind: DType, axis: int) -> Tensor:
    """x − zero point in a wider type; a vector of zero points is along `axis`."""
    wide = call.convert(x, kind)
    if zero is None:
        return wide
    moved = call.convert(zero, kind)
    if moved.elements > 1 and len(moved.shape) == 1:
        moved = call.reshape(moved, (moved.elements, *(1,) * (len(x.shape) - 1 - axis)))
    return call.emit(ops.Sub(), wide, moved)


def matmul_integer(call: OnnxCall) -> Tensor:
    a, b = call.x(0), call.x(1)
    left = without_zero(call, a, call.maybe(2), DType.I32, max(len(a.shape) - 2, 0))
    right = without_zero(call, b, call.maybe(3), DType.I32, len(b.shape) - 1)
    return product(call, left, right)


def conv_integer(call: OnnxCall) -> Tensor:
    x = without_zero(call, call.x(0), call.maybe(2), DType.F32, 0)
    w = without_zero(call, call.x(1), call.maybe(3), DType.F32, 0)
    return integer_sums(call, x, _constant_weights(w))


def _constant_weights(w: Tensor) -> Array:
    if w.data is None:
        raise ShapeError("expected constant weights as input 1, found a computed tensor")
    return w.data


def _requantize(call: OnnxCall, sums: Tensor, factor: Array, index: int) -> Tensor:
    """s32 sums times `factor`, quantized to the type of the zero point in input `index`."""
    kind = _quantized_dtype(call, index)
    scaled = call.emit(ops.Mul(), call.convert(sums, DType.F32), call.constant(factor))
    zero = np.asarray(call.value(index, "zero point"), np.float32)
    low, high = quantized_range(kind)
    moved = call.emit(ops.Add(), call.emit(ops.RoundEven(), scaled), call.constant(zero))
    return call.convert(call.emit(ops.Clip(low, high), moved), kind)


def _quantized_product(call: OnnxCall) -> Tensor | None:
    """QLinearMatMul as a product between DQ and Q, which a pass makes an 8-bit layer if b is
    constant; None if the quantization of an operand is unknown."""
    a, b = _known_real(call, 0), _known_real(call, 3)
    if a is None or b is None or call.x(6).elements != 1 or call.x(6).data is None:
        return None
    return quantize_linear(call.given(product(call, a, b), *call.values[6:8]))


def _known_real(call: OnnxCall, index: int) -> Tensor | None:
    """Quantized input `index` in f32, if its quantization is known or it is a constant matrix."""
    x = call.x(index)
    part = call.given(*call.values[index : index + 3])
    if not _is_known(part):
        return None
    quant = _scale_and_zero(part, 1)
    if x.data is None:
        x = _as_stated(call, x, quant)
        same = x.quant is not None and _equal_scalar_quant(x.quant, quant)
        return call.emit(ops.Cast(), x) if same else None
    if index == 0 or len(x.shape) != 2 or x.dtype not in (DType.I8, DType.U8):
        return None
    return _dequantized_constant(replace(part, attributes={"axis": 1}), x, x.data, quant)


def qlinear_matmul(call: OnnxCall) -> Tensor:
    if (y := _quantized_product(call)) is not None:
        return y
    a, b = call.x(0), call.x(3)
    left = without_zero(call, a, call.x(2), DType.I32, max(len(a.shape) - 2, 0))
    right = without_zero(call, b, call.x(5), DType.I32, len(b.shape) - 1)
    scales = [np.asarray(call.value(i, "scale"), np.float32) for i in (1, 4, 6)]
    if scales[0].ndim == 1 and scales[0].size > 1:
        scales[0] = scales[0][:, None]
    factor = np.asarray(scales[0] * scales[1] / scales[2], np.float32)
    return _requantize(call, product(call, left, right), factor, 7)


def _quantized_conv(call: OnnxCall) -> Tensor | None:
    """QLinearConv as a convolution between DQ and Q, which a pass makes an 8-bit convolution; None
    if the quantization of x is unknown, or weights or bias are computed."""
    x, w, bias = call.x(0), call.x(3), call.maybe(8)
    known = [_is_known(call.given(*call.values[i : i + 3])) for i in (0, 3, 6)]
    if not all(known) or w.data is None or w.dtype not in (DType.I8, DType.U8):
        return None
    if call.x(6).elements != 1 or (bias is not None and bias.data is None):
        return None
    one = _scale_and_zero(call, 1)
    x = _as_stated(call, x, one)
    if x.quant is None or not _equal_scalar_quant(x.quant, one):
        return None
    weights = dequantize_linear(call.given(*call.values[3:6], axis=0))
    terms = None
    if bias is not None:
        unit = one.scale.astype(np.float64) * call.value(4, "scale").reshape(-1)
        terms = call.constant((call.value(8, "bias") * unit).astype(np.float32))
    real = call.emit(ops.Cast(), x)
    y = conv(replace(call, values=[real, weights, terms]))
    return quantize_linear(call.given(y, *call.values[6:8]))


def qlinear_conv(call: OnnxCall) -> Tensor:
    if (y := _quantized_conv(call)) is not None:
        return y
    x = without_zero(call, call.x(0), call.x(2), DType.F32, 0)
    w = _constant_weights(without_zero(call, call.x(3), call.x(5), DType.F32, 0))
    sums = integer_sums(call, x, w)
    if call.maybe(8) is not None:
        shape = (-1, *(1,) * (len(sums.shape) - 2))
        bias = call.value(8, "bias").astype(np.int32).reshape(shape)
        sums = call.emit(ops.Add(), sums, call.constant(bias))
    scales = [np.asarray(call.value(i, "scale"), np.float32) for i in (1, 4, 6)]
    factor = np.asarray(scales[0] * scales[1] / scales[2], np.float32)
    if factor.size > 1:
        factor = factor.reshape(-1, *(1,) * (len(sums.shape) - 2))
    return _requantize(call, sums, factor, 7)
