"""Import handlers of every format that gather and scatter by constant or computed index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Shape, ShapeError, Tensor

_DEPTH_LIMIT = 1 << 26


def gather(call: Emitter, x: Tensor, indices: Tensor, axis: int, batch: int = 0) -> Tensor:
    """x[b..., :, i, ...] for all i = indices[b..., ...], with `batch` shared leading axes."""
    indices = as_indices(call, indices)
    check_indices(indices, (x.shape[axis],))
    if not batch:
        return call.emit(ops.Gather(axis), x, indices, quant=x.quant)
    if batch > axis or x.shape[:batch] != indices.shape[:batch]:
        raise ShapeError(
            f"expected {batch} equal axes before axis {axis}, "
            f"found {list(x.shape)} and {list(indices.shape)}"
        )
    stacks, between = math.prod(x.shape[:batch]), math.prod(x.shape[batch:axis])
    size, rest = x.shape[axis], x.shape[axis + 1 :]
    call.builder.need_room((stacks, between), np.int64)
    starts = np.arange(stacks * between).reshape(stacks, between, 1) * size
    positive = _wrap_negative(call, indices, (size,))
    at = call.reshape(positive, (stacks, 1, indices.elements // max(stacks, 1)))
    rows = call.emit(ops.Add(), at, _constant_like(call, starts, at))
    flat = call.reshape(x, (stacks * between * size, *rest))
    y = call.emit(ops.Gather(0), flat, rows, quant=x.quant)
    return call.reshape(y, (*x.shape[:axis], *indices.shape[batch:], *rest))


def gather_nd(call: Emitter, x: Tensor, indices: Tensor, batch: int = 0) -> Tensor:
    """x[b..., i0, i1, ...] for each tuple (the last axis) of indices[b...]."""
    rows, depth = _row_numbers(call, x.shape, indices, batch)
    tail = x.shape[batch + depth :]
    flat = call.reshape(x, (math.prod(x.shape[: batch + depth]), *tail))
    return call.emit(ops.Gather(0), flat, rows, quant=x.quant)


def scatter_nd(
    call: Emitter,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    join: str = "none",
    valid: Tensor | None = None,
) -> Tensor:
    """x with x[i0, i1, ...] = updates[...] for each tuple (the last axis) of indices, or for those
    whose flag in `valid` (bool, along the first axis) is set."""
    rows, depth = _row_numbers(call, x.shape, indices, 0)
    rows = _only_valid(call, rows, valid, math.prod(x.shape[:depth]))
    tail = x.shape[depth:]
    if updates.shape != rows.shape + tail:
        raise ShapeError(
            f"expected updates of shape {list(rows.shape + tail)}, found {list(updates.shape)}"
        )
    return place(call, x, rows, updates, x.shape[:depth], join)


def gather_elements(call: Emitter, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """x at `indices` along `axis`; the other coordinates are those of the index element."""
    rows = _along_axis(call, x.shape, indices, axis)
    return call.emit(ops.Gather(0), call.reshape(x, (x.elements,)), rows, quant=x.quant)


def _only_valid(call: Emitter, rows: Tensor, valid: Tensor | None, nowhere: int) -> Tensor:
    """`nowhere`, which is out of range and has no effect, in place of rows that are not valid."""
    if valid is None:
        return rows
    along = call.reshape(valid, (valid.elements, *(1,) * (len(rows.shape) - 1)))
    return call.emit(ops.Where(), along, rows, call.scalar(nowhere, rows))


def scatter_elements(
    call: Emitter,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int,
    join: str = "none",
    valid: Tensor | None = None,
) -> Tensor:
    """x with updates at `indices` along `axis`; `valid` as in `scatter_nd`."""
    rows = _only_valid(call, _along_axis(call, x.shape, indices, axis), valid, x.elements)
    if updates.shape != rows.shape:
        raise ShapeError(
            f"expected updates of shape {list(rows.shape)}, found {list(updates.shape)}"
        )
    return place(call, x, rows, updates, x.shape, join)


def place(
    call: Emitter, x: Tensor, rows: Tensor, updates: Tensor, lead: Shape, join: str = "none"
) -> Tensor:
    """x with `updates` at `rows`, flat positions within the leading axes `lead`."""
    run = math.prod(x.shape[len(lead) :])
    flat = call.reshape(x, (math.prod(lead), run))
    new = call.reshape(updates, (rows.elements, run))
    at = call.reshape(rows, (rows.elements,))
    return call.reshape(call.emit(ops.Scatter(join), flat, at, new, quant=x.quant), x.shape)


def one_hot(
    call: Emitter, indices: Tensor, depth: int, on: Tensor, off: Tensor, axis: int
) -> Tensor:
    """`on` where the position along the new `axis` is the index, `off` elsewhere."""
    if not 1 <= depth <= _DEPTH_LIMIT:
        raise ShapeError(f"expected a depth of 1 to {_DEPTH_LIMIT}, found {depth}")
    rank = len(indices.shape)
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    call.builder.need_room((depth,), np.int64)
    steps = np.arange(depth).reshape(depth, *(1,) * (rank - axis))
    hit = call.emit(ops.Equal(), call.reshape(indices, shape), _constant_like(call, steps, indices))
    return call.emit(ops.Where(), hit, on, off, quant=on.quant)


def as_indices(call: Emitter, indices: Tensor) -> Tensor:
    """Integer indices as s32 or s64."""
    if indices.dtype in (DType.I32, DType.I64):
        return indices
    if indices.dtype.is_float or indices.dtype is DType.BOOL:
        raise ShapeError(f"expected integer indices, found {indices.dtype.value}")
    return call.convert(indices, DType.I64 if indices.dtype is DType.U32 else DType.I32)


def check_indices(indices: Tensor, sizes: Sequence[int]) -> None:
    """Checks constant indices against `sizes` (one per element of the last axis, or one for all);
    negative indices count from the end."""
    if indices.data is None or not indices.data.size:
        return
    limit = np.array(sizes, np.int64)
    if not (np.all(indices.data >= -limit) and np.all(indices.data < limit)):
        raise ShapeError(
            f"expected indices within {list(sizes)}, "
            f"found {int(indices.data.min())} to {int(indices.data.max())}"
        )


def _row_numbers(call: Emitter, shape: Shape, indices: Tensor, batch: int) -> tuple[Tensor, int]:
    """Flat positions of index tuples within the leading axes, and the tuple length."""
    depth = indices.shape[-1] if indices.shape else 0
    if (
        not 0 < depth + batch <= len(shape)
        or not 0 <= batch < len(indices.shape)
        or depth < 1
        or indices.shape[:batch] != shape[:batch]
    ):
        raise ShapeError(f"expected indices into {list(shape)}, found {list(indices.shape)}")
    sizes, indices = shape[batch : batch + depth], as_indices(call, indices)
    check_indices(indices, sizes)
    steps = _dense_strides(sizes)
    positive = _wrap_negative(call, indices, sizes)
    parts = call.emit(ops.Mul(), positive, _constant_like(call, np.array(steps), indices))
    rows = call.emit(ops.ReduceSum((len(indices.shape) - 1,)), parts)
    if batch:
        call.builder.need_room(shape[:batch], np.int64)
        stacks = np.arange(math.prod(shape[:batch])) * math.prod(sizes)
        starts = stacks.reshape(*shape[:batch], *(1,) * (len(rows.shape) - batch))
        rows = call.emit(ops.Add(), rows, _constant_like(call, starts, rows))
    return rows, depth


def _along_axis(call: Emitter, shape: Shape, indices: Tensor, axis: int) -> Tensor:
    """Flat positions of elements indexed along `axis`."""
    others = [i for i in range(len(shape)) if i != axis]
    if len(indices.shape) != len(shape) or any(indices.shape[i] > shape[i] for i in others):
        raise ShapeError(f"expected indices into {list(shape)}, found {list(indices.shape)}")
    indices = as_indices(call, indices)
    check_indices(indices, (shape[axis],))
    steps = _dense_strides(shape)
    grid = np.zeros((1,) * len(shape), np.int64)
    call.builder.need_room([n for i, n in enumerate(indices.shape) if i != axis], grid.dtype)
    for i in others:
        column = np.arange(indices.shape[i]) * steps[i]
        grid = grid + column.reshape(-1, *(1,) * (len(shape) - 1 - i))
    positive = _wrap_negative(call, indices, (shape[axis],))
    parts = call.emit(ops.Mul(), positive, _constant_like(call, np.array(steps[axis]), indices))
    return call.emit(ops.Add(), parts, _constant_like(call, grid, indices))


def _dense_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor, in elements."""
    return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def _wrap_negative(call: Emitter, indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Indices wrapped into the axes, so that any value is safe."""
    return call.emit(ops.Modulo(), indices, _constant_like(call, np.array(sizes), indices))


def _constant_like(call: Emitter, value: Array, other: Tensor) -> Tensor:
    return call.constant(value.astype(other.dtype.numpy))
