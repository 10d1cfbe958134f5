"""Import of TensorFlow Lite's matrix products."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.frontends.tflite.conv import at_codes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor


def batch_matmul(call: TfliteCall) -> Tensor:
    """Batched matrices, transposed as the options specify; batch axes broadcast."""
    a, b = call.tensor(0, "first matrices"), call.tensor(1, "second matrices")
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ShapeError(f"expected matrices, found {list(a.shape)} and {list(b.shape)}")
    a = _swap_last_axes(call, a) if call.option("AdjX") else a
    if a.dtype is DType.F32 and b.data is not None and math.prod(b.shape[:-2]) == 1:
        return _constant_matmul(call, a, b)
    b = _swap_last_axes(call, b) if call.option("AdjY") else b
    if b.dtype is DType.I8 and a.dtype is DType.F32:
        b = call.emit(ops.Cast(), b)
    return call.result(ops.MatMul(), a, b)


def _constant_matmul(call: TfliteCall, a: Tensor, b: Tensor) -> Tensor:
    """A constant matrix shared by the batch: a fully connected layer. If it is quantized, rows of a
    are quantized dynamically, around 0 or asymmetrically according to the options."""
    assert b.data is not None
    lead = (1,) * (len(b.shape) - len(a.shape)) + a.shape[:-1]
    data = b.data.reshape(b.shape[-2:])
    weights = call.quantized(np.ascontiguousarray(data if call.option("AdjY") else data.T), None)
    if b.quant is not None:
        if b.quant.per_channel:
            raise ShapeError("expected one scale for a constant matrix, found several")
        weights = call.builder.with_quant(weights, b.quant)
    if weights.dtype is DType.I8 and call.option("AsymmetricQuantizeInputs"):
        a = at_codes(call, a, (a.elements // a.shape[-1], a.shape[-1]))
        weights = call.emit(ops.Cast(), weights)
    y = call.emit(ops.FullyConnected(True), a, weights, None)
    return call.reshape(y, (*lead, weights.shape[0]))


def _swap_last_axes(call: TfliteCall, x: Tensor) -> Tensor:
    rank = len(x.shape)
    return call.transpose(x, (*range(rank - 2), rank - 1, rank - 2))
