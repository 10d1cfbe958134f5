"""Import of TensorFlow Lite operators that gather and scatter by index."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgekit.host.compiler.frontends.common import indexing
from edgekit.host.compiler.frontends.common.lengths import places
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_dtype
from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, Tensor

_SIZE_LIMIT = 1 << 26  # elements of a shape from the file
_SEGMENT_LIMIT = 1 << 20


def gather(call: TfliteCall) -> Tensor:
    x, indices = call.tensor(0, "input"), call.tensor(1, "indices")
    axis, batch = call.axis(call.option("Axis"), len(x.shape)), call.option("BatchDims")
    _need_positive(indices)
    return indexing.gather(call, x, indices, axis, batch + len(indices.shape) * (batch < 0))


def gather_nd(call: TfliteCall) -> Tensor:
    x, indices = call.tensor(0, "input"), call.tensor(1, "indices")
    _need_positive(indices)
    return indexing.gather_nd(call, x, indices)


def _need_positive(indices: Tensor) -> None:
    if indices.data is not None and indices.data.size and indices.data.min() < 0:
        raise ShapeError(f"expected indices of at least 0, found {int(indices.data.min())}")


def scatter_nd(call: TfliteCall) -> Tensor:
    """Updates to the same position are summed."""
    indices, updates = call.tensor(0, "indices"), call.tensor(1, "updates")
    _need_positive(indices)
    join = "max" if updates.dtype is DType.BOOL else "add"
    if join == "max":
        flags = call.convert(updates, DType.U8)
        zeros = _filled_like(call, call.integers(2, "shape"), 0, flags)
        return call.convert(indexing.scatter_nd(call, zeros, indices, flags, join), DType.BOOL)
    zeros = _filled_like(call, call.integers(2, "shape"), 0, updates)
    return indexing.scatter_nd(call, zeros, indices, updates, join)


def sparse_to_dense(call: TfliteCall) -> Tensor:
    """Indices [n, rank], [n] or a scalar; values [n] or a scalar; all else is the default."""
    indices, shape = call.tensor(0, "indices"), call.integers(1, "shape")
    values, default = call.tensor(2, "values"), call.value(3, "default")
    _need_positive(indices)
    count = indices.shape[0] if indices.shape else 1
    indices = call.reshape(indices, (count, indices.elements // max(count, 1)))
    if values.shape != (count,):
        values = call.emit(ops.BroadcastTo((count,)), values, quant=values.quant)
    x = _filled_like(call, shape, default.reshape(-1)[0], values)
    return indexing.scatter_nd(call, x, indices, values)


def _filled_like(call: TfliteCall, shape: Shape, value: float, like: Tensor) -> Tensor:
    """A constant filled with one value, of the type of `like`."""
    if min(shape, default=1) < 1 or math.prod(shape) > _SIZE_LIMIT:
        raise ShapeError(
            f"expected sizes of at least 1 and at most {_SIZE_LIMIT} elements, found {list(shape)}"
        )
    made = call.filled(shape, value, like.dtype.numpy)
    return made if like.quant is None else call.builder.with_quant(made, like.quant)


def embedding_lookup(call: TfliteCall) -> Tensor:
    """Rows of a table, dequantized if the file's output is f32."""
    ids, table = call.tensor(0, "ids"), call.tensor(1, "table")
    _need_positive(ids)
    if table.dtype is call.out_dtype:
        return indexing.gather(call, table, ids, 0)
    if table.quant is None:
        raise ShapeError(f"expected a table with a scale, found {table.dtype.value}")
    if table.quant.per_channel:
        return indexing.gather(call, call.emit(ops.Cast(), table), ids, 0)
    return call.emit(ops.Cast(), indexing.gather(call, table, ids, 0))


_SUM, _MEAN, _SQRT_N = 0, 1, 2


def embedding_lookup_sparse(call: TfliteCall) -> Tensor:
    """Weighted sums of table rows whose indices differ only in the last element, optionally divided
    by the sum of weights or the root of their squares. 0 if there are no rows."""
    ids, at, shape = call.tensor(0, "ids"), call.tensor(1, "indices"), call.integers(2, "shape")
    weights, table = call.tensor(3, "weights"), call.tensor(4, "table")
    need_dtype(table, (DType.F32,), "table")
    need_dtype(weights, (DType.F32,), "weights")
    count, depth, combiner = ids.elements, len(shape) - 1, call.option("Combiner")
    fits = len(ids.shape) == 1 and weights.shape == ids.shape and at.shape == (count, depth + 1)
    if not fits or not count or len(table.shape) < 2 or combiner not in (_SUM, _MEAN, _SQRT_N):
        raise ShapeError(
            f"expected an index of {depth + 1} places and a weight for each of the {count} ids, "
            f"found {list(at.shape)} and {list(weights.shape)}"
        )
    _need_positive(ids)
    _need_positive(at)
    lead, rest = shape[:-1] or (1,), table.shape[1:]
    at = call.part(at, 1, 0, depth) if depth else call.constant(np.zeros((count, 1), np.int32))
    by_row = call.reshape(weights, (count, *(1,) * len(rest)))
    values = call.emit(ops.Mul(), indexing.gather(call, table, ids, 0), by_row)
    zeros = _filled_like(call, (*lead, *rest), 0, values)
    y = indexing.scatter_nd(call, zeros, at, values, "add")
    if combiner != _SUM:
        parts = weights if combiner == _MEAN else call.emit(ops.Mul(), weights, weights)
        none = _filled_like(call, (count,), 0, weights)
        total = indexing.scatter_nd(call, _filled_like(call, lead, 1, weights), at, none)
        total = indexing.scatter_nd(call, total, at, parts, "add")
        total = call.emit(ops.Sqrt(), total) if combiner == _SQRT_N else total
        y = call.emit(ops.Div(), y, call.reshape(total, (*lead, *(1,) * len(rest))))
    return call.reshape(y, (*shape[:-1], *rest))


def one_hot(call: TfliteCall) -> Tensor:
    indices = indexing.as_indices(call, call.tensor(0, "indices"))
    axis = call.axis(call.option("Axis"), len(indices.shape) + 1)
    on, off = call.tensor(2, "on value"), call.tensor(3, "off value")
    return indexing.one_hot(call, indices, call.integer(1, "depth"), on, off, axis)


def reverse_sequence(call: TfliteCall) -> Tensor:
    """Reverses the first `length` steps of each sequence."""
    x, lengths = call.tensor(0, "input"), call.tensor(1, "lengths")
    rank = len(x.shape)
    time, batch = (call.axis(call.option(name), rank) for name in ("SeqDim", "BatchDim"))
    if time == batch or lengths.shape != (x.shape[batch],):
        raise ShapeError(f"expected {x.shape[batch]} lengths, found shape {list(lengths.shape)}")
    steps = call.counting((1, x.shape[time]), lengths.dtype.numpy)
    ends = call.reshape(lengths, (x.shape[batch], 1))
    mirrored = call.emit(ops.Sub(), ends, call.emit(ops.Add(), steps, call.scalar(1, steps)))
    picks = call.emit(ops.Where(), call.emit(ops.Less(), steps, ends), mirrored, steps)
    order = [batch, time, *(i for i in range(rank) if i not in (batch, time))]
    y = indexing.gather(call, call.transpose(x, order), picks, 1, 1)
    return call.transpose(y, np.argsort(order).tolist())


def segment_sum(call: TfliteCall) -> Tensor:
    """Sums of rows with equal segment ids, which are constant."""
    ids = call.value(1, "segment numbers")
    return _reduce_segments(call, int(ids.max(initial=-1)) + 1, "add")


def unsorted_segment(join: str) -> Callable[[TfliteCall], Tensor]:
    return lambda call: _reduce_segments(call, call.integer(2, "number of segments"), join)


def _reduce_segments(call: TfliteCall, count: int, join: str) -> Tensor:
    """Rows of x combined by segment id; negative ids belong to no segment."""
    x, ids = call.tensor(0, "input"), indexing.as_indices(call, call.tensor(1, "segment numbers"))
    if not 1 <= count <= _SEGMENT_LIMIT or x.shape[: len(ids.shape)] != ids.shape:
        raise ShapeError(f"expected segments of {list(x.shape)}, found {list(ids.shape)}")
    limits = np.finfo(np.float32) if x.dtype is DType.F32 else np.iinfo(x.dtype.numpy)
    start = float({"add": 0, "mul": 1, "max": limits.min, "min": limits.max}[join])
    rest = x.shape[len(ids.shape) :]
    outside = call.emit(ops.Less(), ids, call.scalar(0, ids))
    rows = call.emit(ops.Where(), outside, call.scalar(count, ids), ids)
    return indexing.place(
        call, _filled_like(call, (count, *rest), start, x), rows, x, (count,), join
    )


def matrix_diag(call: TfliteCall) -> Tensor:
    """[..., n] → [..., n, n]"""
    x = call.tensor(0, "diagonal")
    if not x.shape:
        raise ShapeError("expected a diagonal of rank 1 or more, found a scalar")
    rows = call.reshape(x, (*x.shape, 1))
    call.builder.need_room((x.shape[-1], x.shape[-1]), np.bool_)
    eye = call.constant(np.eye(x.shape[-1], dtype=np.bool_))
    return call.result(ops.Where(), eye, rows, call.scalar(0, x))


def matrix_set_diag(call: TfliteCall) -> Tensor:
    """x [..., rows, columns] with its diagonal replaced, [..., min(rows, columns)]."""
    x, diagonal = call.tensor(0, "matrices"), call.tensor(1, "diagonal")
    if len(x.shape) < 2 or diagonal.shape != (*x.shape[:-2], min(x.shape[-2:])):
        raise ShapeError(
            f"expected diagonals of {list(x.shape)}, found shape {list(diagonal.shape)}"
        )
    rows, columns = x.shape[-2:]
    call.builder.need_room((rows, columns), np.bool_)
    eye = call.constant(np.eye(rows, columns, dtype=np.bool_))
    # The diagonal broadcasts along the longer axis.
    wide = (*x.shape[:-2], 1, columns) if columns <= rows else (*x.shape[:-2], rows, 1)
    return call.result(ops.Where(), eye, call.reshape(diagonal, wide), x)


def dynamic_update_slice(call: TfliteCall) -> Tensor:
    """x with `update` at a computed position, clamped so that it fits."""
    x, update = call.tensor(0, "operand"), call.tensor(1, "update")
    starts, rank = call.tensor(2, "start"), len(x.shape)
    if len(update.shape) != rank or starts.shape != (rank,) or rank == 0:
        raise ShapeError(f"expected a part of {list(x.shape)}, found {list(update.shape)}")
    room = np.array(x.shape) - np.array(update.shape)
    if room.min() < 0:
        raise ShapeError(f"expected a part of {list(x.shape)}, found {list(update.shape)}")
    free = [i for i in range(rank) if room[i]]
    if not free:
        return update
    lead = x.shape[: free[-1] + 1]  # rows beyond these axes are complete
    steps = [math.prod(lead[i + 1 :]) if i in free else 0 for i in range(rank)]
    first, kind = call.scalar(0, starts), starts.dtype.numpy
    inside = call.emit(ops.Minimum(), starts, call.constant(room.astype(kind)))
    inside = call.emit(ops.Maximum(), inside, first)
    parts = call.emit(ops.Mul(), inside, call.constant(np.array(steps, kind)))
    offset = call.emit(ops.ReduceSum((0,)), parts)
    call.builder.need_room((*update.shape[: len(lead)], len(lead)), np.int64)
    grid = np.ravel_multi_index(tuple(np.indices(update.shape[: len(lead)])), lead)
    rows = call.emit(ops.Add(), call.constant(np.asarray(grid).astype(kind)), offset)
    return indexing.place(call, x, rows, update, lead)


def bucketize(call: TfliteCall) -> Tensor:
    """The number of boundaries (ascending) less than or equal to each value."""
    x = call.convert(call.tensor(0, "input"), DType.F32)
    bounds = np.array(call.operator.option_vector("Boundaries") or (), np.float32)
    if not bounds.size:
        return call.filled(x.shape, 0, np.int32)
    over = call.emit(ops.LessOrEqual(), call.constant(bounds), call.reshape(x, (*x.shape, 1)))
    return call.emit(ops.ReduceSum((len(x.shape),)), call.convert(over, DType.I32))


def where(call: TfliteCall) -> Tensor:
    """Positions of non-zero elements; for a computed condition, unused rows are -1."""
    condition = call.tensor(0, "condition")
    if condition.data is None and not condition.shape:
        raise ShapeError("expected a condition of at least one axis, found a number")
    rows, length = places(call, condition)
    return rows if length is None else call.counted(rows, length)


def unique(call: TfliteCall) -> list[Tensor]:
    """A constant's distinct values in order of first occurrence, and each element's index."""
    values, first, inverse = np.unique(
        call.value(0, "input"), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    places = np.argsort(order)[inverse.reshape(-1)]
    kind = call.outputs[-1].dtype.numpy
    return [call.constant(values[order]), call.constant(places.astype(kind))]
