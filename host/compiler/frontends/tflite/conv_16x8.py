"""Import of TensorFlow Lite layers with 16-bit activations and 8-bit weights ("16x8")."""

from __future__ import annotations

from functools import partial

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.frontends.tflite.transposed_conv import spread
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_rank
from edgekit.host.compiler.ir.types import DType, Quant, ShapeError, Tensor


def is_wide(x: Tensor | None) -> bool:
    return x is not None and x.dtype is DType.I16


def conv_2d(call: TfliteCall, op: ops.Conv2D) -> Tensor:
    """A convolution, grouped if the weights have fewer input channels than the image."""
    x, w, bias = _conv_operands(call)
    groups = max(x.shape[3] // max(w.shape[3], 1), 1)
    wide = ops.Conv2D16x8(
        op.stride, op.dilation, op.padding, groups, op.activation, _rounding(bias)
    )  # fmt: skip
    return call.result(wide, x, w, bias)


def _rounding(bias: Tensor | None) -> ops.Rounding:
    short = bias is None or bias.dtype is DType.I64
    return ops.Rounding.SHORT if short else ops.Rounding.TWICE


def depthwise_conv_2d(call: TfliteCall, op: ops.DepthwiseConv2D) -> Tensor:
    x, w, bias = _conv_operands(call)
    _need_long(bias)
    assert w.data is not None
    quant = w.quant
    if quant is not None and quant.per_channel:
        _need_axis(quant, 3)
        quant = Quant(quant.scale, quant.zero_point, 0)
    weights = call.quantized(np.ascontiguousarray(w.data.transpose(3, 1, 2, 0)), quant)
    wide = ops.Conv2D16x8(op.stride, op.dilation, op.padding, x.shape[3], op.activation)
    return call.result(wide, x, weights, bias)


def transpose_conv(call: TfliteCall, op: ops.TransposeConv2D, order: tuple[int, ...]) -> Tensor:
    x, w, bias = _conv_operands(call, order)
    op.check_size(x, w)
    return spread(call, op, x, w, bias, partial(ops.Conv2D16x8, rounding=_rounding(bias)))


def fully_connected(call: TfliteCall, op: ops.FullyConnected) -> Tensor:
    x, w, bias = _conv_operands(call, rank=2)
    n, k = w.shape
    if k < 1 or x.elements % k or (op.keep_dims and x.shape[-1:] != (k,)):
        raise ShapeError(f"expected rows of {k} values, found input {list(x.shape)}")
    rows = call.reshape(x, (1, 1, x.elements // k, k))
    weights = call.reshape(w, (n, 1, 1, k))
    wide = ops.Conv2D16x8(activation=op.activation, rounding=ops.Rounding.ONCE)
    y = call.result(wide, rows, weights, bias)
    return call.reshape(y, (*x.shape[:-1], n) if op.keep_dims else (x.elements // k, n))


def _conv_operands(
    call: TfliteCall, order: tuple[int, ...] = (0, 1, 2), rank: int = 4
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Image, weights and bias, from the inputs with these indices."""
    x, w, bias = call.tensor(order[0], "image"), call.tensor(order[1], "weights"), None
    if len(call.tensors) > order[2]:
        bias = call.maybe(order[2])
    if w.data is None or (bias is not None and bias.data is None):
        raise ShapeError("expected constant weights and bias, found computed ones")
    need_rank(w, rank, "weights")
    if rank == 4:
        need_rank(x, 4, "image")
    if w.dtype is not DType.I8:
        raise ShapeError(f"expected s8 weights of an s16 image, found {w.dtype.value}")
    return x, w, bias


def _need_long(bias: Tensor | None) -> None:
    if bias is not None and bias.dtype is not DType.I64:
        raise ShapeError(f"expected a bias of type s64, found {bias.dtype.value}")


def _need_axis(quant: Quant, axis: int) -> None:
    if quant.axis != axis:
        raise ShapeError(
            f"expected one scale per output channel, found scales on axis {quant.axis}"
        )
