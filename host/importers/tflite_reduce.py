"""TensorFlow Lite's reductions, softmax and normalizations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, ShapeError, Tensor
from edgekit.host.importers.tflite_call import Call

_TINY = 1e-12  # below which TFLite's L2 normalization divides by this instead of the square sum


def mean(call: Call) -> Tensor:
    x = call.tensor(0, "input")
    return call.result(ops.Mean(_axes(call, x), bool(call.option("KeepDims"))), x)


def total(op: type[ops.Total]) -> Callable[[Call], Tensor]:
    """A reduction of plain values over constant axes."""

    def build(call: Call) -> Tensor:
        x = call.tensor(0, "input")
        return call.result(op(_axes(call, x), bool(call.option("KeepDims"))), x)

    return build


def _axes(call: Call, x: Tensor) -> tuple[int, ...]:
    rank = len(x.shape)
    return tuple(sorted({call.axis(a, rank) for a in call.integers(1, "axes")}))


def arg_extreme(smallest: bool) -> Callable[[Call], Tensor]:
    def build(call: Call) -> Tensor:
        x = call.tensor(0, "input")
        axis = call.axis(call.integer(1, "axis"), len(x.shape))
        found = call.emit(ops.ArgExtreme(axis, smallest=smallest), x)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        return call.convert(call.reshape(found, shape), call.out_dtype)

    return build


def softmax(call: Call) -> Tensor:
    return call.result(ops.Softmax(float(call.option("Beta"))), call.tensor(0, "input"))


def log_softmax(call: Call) -> Tensor:
    x = call.tensor(0, "input")
    if x.dtype is not DType.F32:
        raise ShapeError(f"expected an input of type f32, found {x.dtype.value}")
    last = (len(x.shape) - 1,)
    offset = call.emit(ops.Sub(), x, call.emit(ops.ReduceMax(last, True), x))
    total = call.emit(ops.ReduceSum(last, True), call.emit(ops.Exp(), offset))
    return call.emit(ops.Sub(), offset, call.emit(ops.Log(), total))


def l2_normalization(call: Call) -> Tensor:
    x = call.tensor(0, "input")
    if x.dtype is not DType.F32:
        raise ShapeError(f"expected an input of type f32, found {x.dtype.value}")
    last = (len(x.shape) - 1,)
    squares = call.emit(ops.ReduceSum(last, True), call.emit(ops.Mul(), x, x))
    norm = call.emit(ops.Sqrt(), call.emit(ops.Maximum(), squares, call.scalar(_TINY, x)))
    return call.emit(ops.Div(), x, norm)


def cumsum(call: Call) -> Tensor:
    """By a product with a triangle of ones."""
    x = call.tensor(0, "input")
    if x.dtype is not DType.F32:
        raise ShapeError(f"expected an input of type f32, found {x.dtype.value}")
    axis = call.axis(call.integer(1, "axis"), len(x.shape))
    size = x.shape[axis]
    ones = np.tri(size, size, -1 if call.option("Exclusive") else 0, dtype=np.float32)
    rows = call.last(x, axis)
    shape = rows.shape
    flat = call.reshape(rows, (x.elements // size, size))
    weights = ones if not call.option("Reverse") else ones.T
    y = call.emit(ops.MatMul(), flat, call.constant(np.ascontiguousarray(weights.T)))
    return call.back(call.reshape(y, shape), axis)


def top_k(call: Call) -> list[Tensor]:
    x, k = call.tensor(0, "input"), call.integer(1, "k")
    index = call.outputs[-1].dtype
    if index not in (DType.I32, DType.I64):
        raise ShapeError(f"expected indices of type s32 or s64, found {index.value}")
    return call.results(ops.TopK(k, index=index), x)
