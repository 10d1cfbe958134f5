"""Import of ONNX operators that gather and scatter by index."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common import indexing
from edgekit.host.compiler.frontends.common.lengths import length_of
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

_JOINS = ("none", "add", "mul", "max", "min")


def gather(call: OnnxCall) -> Tensor:
    x, indices = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    if indices.data is not None and indices.data.ndim == 0 and x.data is None:
        indexing.check_indices(indices, (x.shape[axis],))
        return one_of(call, x, axis, int(indices.data) % x.shape[axis])
    return indexing.gather(call, x, indices, axis)


def one_of(call: OnnxCall, x: Tensor, axis: int, index: int) -> Tensor:
    """x[..., index, ...] as a slice, which passes can move."""
    begin, extent = [0] * len(x.shape), list(x.shape)
    begin[axis], extent[axis] = index, 1
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    ones = (1,) * len(x.shape)
    return call.emit(ops.StridedSlice(tuple(begin), ones, tuple(extent), shape), x)


def gather_elements(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    return indexing.gather_elements(call, x, call.x(1), axis)


def gather_nd(call: OnnxCall) -> Tensor:
    return indexing.gather_nd(call, call.x(0), call.x(1), call.integer("batch_dims", 0))


def scatter_elements(call: OnnxCall) -> Tensor:
    x = call.x(0)
    axis = call.axis(call.integer("axis", 0), len(x.shape))
    indices, join = call.x(1), _read_reduction(call)
    valid = None if axis else call.bounded.valid(indices)
    if axis in call.bounded.axes(x) and (there := call.bounded.valid(x)) is not None:
        indices = call.convert(indices, DType.I64)
        below = call.emit(ops.Less(), indices, call.constant(np.array(0, np.int64)))
        from_end = call.emit(ops.Add(), indices, length_of(call, there))
        indices = call.emit(ops.Where(), below, from_end, indices)
    return indexing.scatter_elements(call, x, indices, call.x(2), axis, join, valid)


def scatter_nd(call: OnnxCall) -> Tensor:
    valid = call.bounded.valid(call.x(1))
    return indexing.scatter_nd(call, call.x(0), call.x(1), call.x(2), _read_reduction(call), valid)


def _read_reduction(call: OnnxCall) -> str:
    kind = call.text("reduction", "none")
    if kind not in _JOINS:
        raise ShapeError(f"expected reduction {', '.join(_JOINS)}, found {kind}")
    return kind


def one_hot(call: OnnxCall) -> Tensor:
    """Negative indices count from the end."""
    given, values = call.numbers(1, "depth"), call.value(2, "values").reshape(-1)
    if len(given) != 1 or not given[0].is_integer() or len(values) != 2:
        raise ShapeError(f"expected one depth and two values, found {given!r:.40}, {len(values)}")
    depth = int(given[0])
    axis = call.axis(call.integer("axis", -1), len(call.x(0).shape) + 1)
    indices = call.convert(call.x(0), DType.I64)
    size = call.constant(np.array(depth, np.int64))
    below = call.emit(ops.Less(), indices, call.constant(np.array(0, np.int64)))
    indices = call.emit(ops.Where(), below, call.emit(ops.Add(), indices, size), indices)
    off, on = (call.constant(np.array(v)) for v in values[:2])
    return indexing.one_hot(call, indices, depth, on, off, axis)
