"""Import of ONNX losses, which exported training graphs may still contain."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_axes
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.reduce import log_of_softmax, total
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor


def negative_log_likelihood_loss(call: OnnxCall) -> Tensor:
    return _nll_loss(call, call.x(0))


def softmax_cross_entropy_loss(call: OnnxCall) -> list[Tensor]:
    logs = log_of_softmax(call, call.x(0), (1,))
    return [_nll_loss(call, logs), logs]


def _nll_loss(call: OnnxCall, logs: Tensor) -> Tensor:
    """−weight · log at each target class (input 1); or their weighted mean, or their sum."""
    target, classes = call.x(1), logs.shape[1:2]
    need_axes(logs, 2)
    if (logs.shape[0], *logs.shape[2:]) != target.shape or not classes:
        raise ShapeError(f"expected a class for each row of {list(logs.shape)}, found others")
    wide = call.convert(call.reshape(target, (target.shape[0], 1, *target.shape[1:])), DType.I64)
    behind = (1,) * (len(logs.shape) - 2)
    hit = call.emit(ops.Equal(), wide, call.counting((*classes, *behind)))
    if call.has("ignore_index"):
        ignored = call.constant(np.array(call.integer("ignore_index"), np.int64))
        counted = call.emit(ops.Not(), call.emit(ops.Equal(), wide, ignored))
        hit = call.emit(ops.And(), hit, counted)
    weights = call.builder.floats(1.0)
    if call.maybe(2) is not None:
        weights = call.reshape(call.x(2), (*classes, *behind))
        logs = call.emit(ops.Mul(), logs, weights)
    zero = call.builder.floats(0.0)
    picked = call.emit(ops.Where(), hit, call.emit(ops.Neg(), logs), zero)
    kind, every = call.text("reduction", "mean"), tuple(range(len(logs.shape)))
    if kind == "none":
        return total(call, ops.ReduceSum, picked, (1,), False)
    sums = total(call, ops.ReduceSum, picked, every, False)
    if kind == "sum":
        return sums
    if kind != "mean":
        raise ShapeError(f"expected reduction none, sum or mean, found {kind}")
    counts = call.emit(ops.Where(), hit, weights, zero)
    return call.emit(ops.Div(), sums, total(call, ops.ReduceSum, counts, every, False))
