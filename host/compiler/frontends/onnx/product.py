"""Import of ONNX matrix products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.exact import can_be_exact, is_power_of_two
from edgekit.host.compiler.ir.types import DType, MisfitError, ShapeError, Tensor


def matmul(call: OnnxCall) -> Tensor:
    return product(call, call.x(0), call.x(1))


def product(call: OnnxCall, a: Tensor, b: Tensor) -> Tensor:
    """a · b with NumPy semantics; a constant 2-D b makes an f32 product a fully connected layer."""
    if not a.shape or not b.shape:
        raise ShapeError("expected matrices or vectors, found a scalar")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    a = call.reshape(a, (1, *a.shape)) if row else a
    b = call.reshape(b, (*b.shape, 1)) if column else b
    if a.shape[-1] != b.shape[-2]:
        raise MisfitError(f"expected inner sizes that agree, found {a.shape[-1]} and {b.shape[-2]}")
    if b.data is not None and len(b.shape) == 2 and a.dtype is DType.F32:
        y = call.emit(ops.FullyConnected(True), a, _transpose_weights(call, b), None)
    else:
        y = call.emit(ops.MatMul(), a, b)
    if row:
        y = call.reshape(y, (*y.shape[:-2], y.shape[-1]))
    return call.reshape(y, y.shape[:-1]) if column else y


def _transpose_weights(call: OnnxCall, b: Tensor) -> Tensor:
    """The constant [k, n] as weights [n, k]; per-tensor or per-column quantization is kept."""
    data, quant = b.data, b.quant
    assert data is not None
    if quant is not None and quant.per_channel:
        quant = replace(quant, axis=0) if quant.axis == 1 else None
    return call.builder.once(("transposed", b.name), lambda: [call.quantized(data.T, quant)])[0]


def gemm(call: OnnxCall) -> Tensor:
    """alpha · A' · B' + beta · C."""
    a, b = call.x(0), call.x(1)
    need_rank(a, 2)
    need_rank(b, 2)
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    a = call.transpose(a, (1, 0)) if call.integer("transA", 0) else a
    rows = b if call.integer("transB", 0) else None  # already [n, k]
    b = call.transpose(b, (1, 0)) if rows is not None else b
    later = alpha != 1.0 and _has_exact_sums(b, alpha)
    if alpha != 1.0 and not later:
        b, rows = call.emit(ops.Mul(), b, call.scalar(alpha, b)), None
    c = call.maybe(2)
    if c is not None and beta != 1.0:
        c = call.emit(ops.Mul(), c, call.scalar(beta, c))
    if b.data is None or a.dtype is not DType.F32:
        y = product(call, a, b)
        return y if c is None else call.emit(ops.Add(), y, c)
    bias = None
    if c is not None and c.data is not None and not later:
        columns = b.shape[1] if c.shape[-1:] == (b.shape[1],) else 1
        if c.data.size in (1, columns):
            bias = call.constant(np.broadcast_to(c.data.reshape(-1), (b.shape[1],)))
    weights = _transpose_weights(call, b) if rows is None else rows
    y = call.emit(ops.FullyConnected(), a, weights, bias)
    y = call.emit(ops.Mul(), y, call.scalar(alpha, y)) if later else y
    return y if bias is not None or c is None else call.emit(ops.Add(), y, c)


def _has_exact_sums(b: Tensor, alpha: float) -> bool:
    """Whether products with `b` sum whole numbers exactly, and would not if `alpha` scaled it."""
    if b.data is None or b.dtype is not DType.F32:
        return False
    return can_be_exact(b.data.T) and not is_power_of_two(np.full(1, alpha, np.float32))
