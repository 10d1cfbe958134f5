"""Import of the quantized operators of ONNX Runtime's tools (domain com.microsoft).

They follow ONNX Runtime's definition: dequantize, compute in f32, quantize. A pass turns f32
operators between tensors of known quantization into integer operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx import math, pool, quant, recurrent, reduce
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.dynamic import dynamic_layer
from edgekit.host.compiler.frontends.onnx.product import product
from edgekit.host.compiler.frontends.onnx.types import Value
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

Row = Callable[[OnnxCall], Tensor]


def real(call: OnnxCall, index: int, axis: int = 1) -> Tensor:
    """Inputs `index` to `index + 2` (values, scale, zero point), dequantized to f32."""
    scale = call.x(index + 1)
    return quant.dequantize_linear(
        call.given(call.x(index), scale, call.maybe(index + 2), axis=axis)
    )


def _quantize_output(call: OnnxCall, y: Tensor, index: int, like: Tensor) -> Tensor:
    """y, quantized with scale and zero point from inputs `index` and `index + 1`."""
    zero = call.maybe(index + 1) or call.constant(np.zeros((), like.dtype.numpy))
    return quant.quantize_linear(call.given(y, call.x(index), zero))


def binary(op: ops.Add | ops.Mul) -> Row:
    def build(call: OnnxCall) -> Tensor:
        y = call.emit(op, real(call, 0), real(call, 3))
        return _quantize_output(call, y, 6, call.x(0))

    return build


def unary(row: Callable[[OnnxCall], Value | list[Tensor]]) -> Row:
    """A handler that applies `row` to dequantized values; `channels_last` inputs are transposed."""

    def build(call: OnnxCall) -> Tensor:
        x, transposed = real(call, 0), bool(call.integer("channels_last", 0))
        x = channels_first(call, x) if transposed else x
        y = row(replace(call, values=[x]))
        assert isinstance(y, Tensor)
        y = channels_last(call, y) if transposed else y
        return _quantize_output(call, y, 3, call.x(0))

    return build


def channels_first(call: OnnxCall, x: Tensor) -> Tensor:
    rank = len(x.shape)
    return call.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(call: OnnxCall, x: Tensor) -> Tensor:
    return call.transpose(x, (0, *range(2, len(x.shape)), 1))


def softmax(call: OnnxCall) -> Tensor:
    forms = replace(call, values=[real(call, 0)], opset=call.integer("opset", call.opset))
    return _quantize_output(call, reduce.softmax(forms), 3, call.x(0))


def concat(call: OnnxCall) -> Tensor:
    parts = [real(call, i) for i in range(2, len(call.values), 3)]
    if not parts:
        raise ShapeError("expected at least one input, found none")
    axis = call.axis(call.integer("axis"), len(parts[0].shape))
    y = parts[0] if len(parts) == 1 else call.emit(ops.Concat(axis), *parts)
    return _quantize_output(call, y, 0, call.x(2))


def where(call: OnnxCall) -> Tensor:
    y = call.emit(ops.Where(), call.x(0), real(call, 1), real(call, 4))
    return _quantize_output(call, y, 7, call.x(1))


def max_pool(call: OnnxCall) -> Value | list[Tensor]:
    """NhwcMaxPool: quantization preserves the order of values, so they are pooled directly."""
    made = pool.max_pool(replace(call, values=[channels_first(call, call.x(0))]))
    first = made[0] if isinstance(made, list) else made
    return channels_last(call, first)


def convolution(call: OnnxCall) -> Tensor:
    """QLinearConv with images in either layout."""
    if not call.integer("channels_last", 0):
        return quant.qlinear_conv(call)
    x = channels_first(call, call.x(0))
    return channels_last(call, quant.qlinear_conv(replace(call, values=[x, *call.values[1:]])))


def gemm(call: OnnxCall) -> Tensor:
    """alpha · A' · B' + C in f32, quantized if an output scale is given."""
    transposed = bool(call.integer("transB", 0))
    a, b = real(call, 0), real(call, 3, 0 if transposed else 1)
    need_rank(a, 2)
    need_rank(b, 2)
    a = call.transpose(a, (1, 0)) if call.integer("transA", 0) else a
    b = _transpose_matrix(call, b) if transposed else b
    alpha = call.number("alpha", 1.0)
    y = product(call, a, b)
    y = y if alpha == 1 else call.emit(ops.Mul(), y, call.builder.floats(alpha))
    if call.maybe(6) is not None:
        scales = [call.value(i, "scale").reshape(-1) for i in (1, 4)]
        unit = call.constant(np.asarray(np.float32(alpha) * scales[0] * scales[1], np.float32))
        bias = call.emit(ops.Mul(), call.convert(call.x(6), DType.F32), unit)
        y = call.emit(ops.Add(), y, bias)
    return y if call.maybe(7) is None else _quantize_output(call, y, 7, call.x(0))


def _transpose_matrix(call: OnnxCall, b: Tensor) -> Tensor:
    """b transposed; a constant keeps its quantization."""
    if b.data is None or b.quant is None:
        return call.transpose(b, (1, 0))
    return call.quantized(b.data.T, replace(b.quant, axis=1 - b.quant.axis))


def _dequantized_weights(call: OnnxCall, index: int, scale: int, zero: int) -> Tensor:
    """A quantized matrix in f32, with scales per tensor or column."""
    w, scales = call.x(index), call.x(scale)
    return quant.dequantize_linear(call.given(w, scales, call.maybe(zero), axis=len(w.shape) - 1))


def _with_bias(call: OnnxCall, y: Tensor, index: int) -> Tensor:
    bias = call.maybe(index)
    return y if bias is None else call.emit(ops.Add(), y, bias)


def dynamic_matmul(call: OnnxCall) -> Tensor:
    """DynamicQuantizeMatMul: an 8-bit layer, or the equivalent in f32."""
    ins = (call.x(0), call.x(1), call.x(2), call.maybe(3), call.maybe(4))
    if (y := dynamic_layer(call, *ins)) is not None:
        return y
    y = product(call, quant.rounded(call, call.x(0)), _dequantized_weights(call, 1, 2, 3))
    return _with_bias(call, y, 4)


def matmul_to_float(call: OnnxCall) -> Tensor:
    """MatMulIntegerToFloat; its scales may be computed."""
    a = _dequantize_operand(
        call, call.x(0), call.x(2), call.maybe(4), max(len(call.x(0).shape) - 2, 0)
    )
    b = _dequantize_operand(call, call.x(1), call.x(3), call.maybe(5), len(call.x(1).shape) - 1)
    return _with_bias(call, product(call, a, b), 6)


def _dequantize_operand(
    call: OnnxCall, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int
) -> Tensor:
    wide = quant.without_zero(call, x, zero, DType.F32, axis)
    if scale.elements > 1:
        scale = call.reshape(scale, (scale.elements, *(1,) * (len(x.shape) - 1 - axis)))
    return call.emit(ops.Mul(), wide, scale)


def lstm(call: OnnxCall) -> list[Tensor]:
    """DynamicQuantizeLSTM: quantized weights [directions, size, gates · hidden]. Their other
    operand is quantized dynamically at each step."""
    weights = []
    for index, scale in ((1, 8), (2, 10)):
        w, scales = call.x(index), call.x(scale)
        zero = call.maybe(scale + 1)
        wide = call.convert(w, DType.F32)
        if zero is not None:
            wide = call.emit(ops.Sub(), wide, _per_gate(call, call.convert(zero, DType.F32)))
        real_w = call.emit(ops.Mul(), wide, _per_gate(call, scales))
        weights.append(call.transpose(real_w, (0, 2, 1)))
    values = [call.x(0), *weights, *call.values[3:8]]
    return recurrent.lstm(replace(call, values=values), lambda x: quant.rounded(call, x))


def _per_gate(call: OnnxCall, scales: Tensor) -> Tensor:
    """[directions] or [directions, gates · hidden], shaped to broadcast against the weights."""
    return call.reshape(scales, (scales.shape[0], 1, -(-scales.elements // scales.shape[0])))


QLINEAR: dict[str, Callable[[OnnxCall], Value | list[Tensor]]] = {
    "DequantizeLinear": quant.dequantize_linear,
    "DynamicQuantizeLSTM": lstm,
    "DynamicQuantizeMatMul": dynamic_matmul,
    "MatMulIntegerToFloat": matmul_to_float,
    "NhwcMaxPool": max_pool,
    "QGemm": gemm,
    "QLinearAdd": binary(ops.Add()),
    "QLinearAveragePool": unary(pool.average_pool),
    "QLinearConcat": concat,
    "QLinearConv": convolution,
    "QLinearGlobalAveragePool": unary(pool.global_average_pool),
    "QLinearLeakyRelu": unary(math.attributed(ops.LeakyRelu)),
    "QLinearMul": binary(ops.Mul()),
    "QLinearSigmoid": unary(math.function(ops.Logistic())),
    "QLinearSoftmax": softmax,
    "QLinearWhere": where,
    "QuantizeLinear": quant.quantize_linear,
}
