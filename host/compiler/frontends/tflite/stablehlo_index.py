"""Import of StableHLO gather and scatter: windows at computed positions of some axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.common import indexing
from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_WINDOW_LIMIT = 1 << 24  # elements of a window


def gather(call: TfliteCall) -> Tensor:
    """A window of x for each index tuple, clamped to stay inside x."""
    x, rank = call.tensor(0, "operand"), len(call.tensor(0, "operand").shape)
    axes, sizes = (
        _option_axes(call, "StartIndexMap", rank),
        call.operator.option_vector("SliceSizes"),
    )
    collapsed, offsets = (
        _option_axes(call, "CollapsedSliceDims", rank),
        _option_vector(call, "OffsetDims"),
    )
    if sizes is None or len(sizes) != rank or any(
        not 1 <= s <= d for s, d in zip(sizes, x.shape, strict=True)
    ):  # fmt: skip
        raise ShapeError(f"expected a window inside {list(x.shape)}, found {sizes}")
    if any(sizes[a] != 1 for a in collapsed):
        raise ShapeError(f"expected collapsed axes of size 1, found a window of {list(sizes)}")
    starts = _index_tuples(call, 1, len(axes))
    room = [x.shape[a] - sizes[a] for a in axes]
    lead = max((i + 1 for i in range(rank) if sizes[i] != x.shape[i]), default=0)
    rows = _flat_positions(
        call, x.shape[:lead], axes, _clamp(call, starts, np.zeros(len(axes)), room)
    )
    grid = _window_positions(sizes[:lead], x.shape[:lead])
    rows = call.reshape(rows, (*rows.shape, *(1,) * lead))
    if grid.any():
        rows = call.emit(ops.Add(), rows, call.constant(grid.astype(rows.dtype.numpy)))
    flat = call.reshape(x, (math.prod(x.shape[:lead]), *x.shape[lead:]))
    windows = call.emit(ops.Gather(0), flat, rows, quant=x.quant)
    kept = tuple(s for i, s in enumerate(sizes) if i not in collapsed)
    batch = starts.shape[:-1]
    y = call.reshape(windows, (*batch, *kept))
    if len(offsets) != len(kept) or sorted({*offsets}) != [*offsets] or not all(
        0 <= o < len(y.shape) for o in offsets
    ):  # fmt: skip
        raise ShapeError(f"expected {len(kept)} axes of the window in the result, found {offsets}")
    order = iter(range(len(batch)))
    window = iter(range(len(batch), len(y.shape)))
    return call.transpose(y, [next(window if i in offsets else order) for i in range(len(y.shape))])


_JOINS = {
    "": "none",
    "STABLEHLO_ADD": "add",
    "STABLEHLO_MULTIPLY": "mul",
    "STABLEHLO_MAXIMUM": "max",
    "STABLEHLO_MINIMUM": "min",
}
_OF_BOOLS = {"add": "max", "mul": "min"}


def scatter(call: TfliteCall) -> Tensor:
    """x with a window of updates for each index tuple; elements outside x are dropped."""
    x, updates = call.tensor(0, "operand"), call.tensor(2, "updates")
    rank, total = len(x.shape), len(updates.shape)
    axes = _option_axes(call, "ScatterDimsToOperandDims", rank)
    inserted, window = (
        _option_axes(call, "InsertedWindowDims", rank),
        _option_vector(call, "UpdateWindowDims"),
    )
    starts = _index_tuples(call, 1, len(axes))
    join = _JOINS.get(call.region("UpdateComputationSubgraphIndex"))
    if join is None or updates.dtype is not x.dtype:
        raise ShapeError(
            f"expected updates of {x.dtype.value} that are put, added, multiplied or compared, "
            f"found {updates.dtype.value} or another function"
        )
    kept = [i for i in range(rank) if i not in inserted]
    inside = all(0 <= w < total for w in window) and len({*window}) == len(window) == len(kept)
    batch = [i for i in range(total) if i not in window]
    if not inside or tuple(updates.shape[i] for i in batch) != starts.shape[:-1]:
        raise ShapeError(f"expected updates of {list(x.shape)}, found {list(updates.shape)}")
    sizes = [1] * rank
    for axis, place in zip(kept, window, strict=True):
        sizes[axis] = updates.shape[place]
    if any(not 1 <= s <= d for s, d in zip(sizes, x.shape, strict=True)):
        raise ShapeError(f"expected windows inside {list(x.shape)}, found {sizes}")
    # Beyond the `lead` axes, rows are complete and in the same order in x and updates.
    lead = rank
    while lead and lead - 1 not in (*axes, *inserted) and sizes[lead - 1] == x.shape[lead - 1]:
        if window[kept.index(lead - 1)] != total - (rank - lead) - 1:
            break
        lead -= 1
    rows = _window_rows(call, x.shape[:lead], sizes[:lead], axes, starts)
    # Transpose the row numbers to the axis order of the updates.
    behind = {p: starts_at for starts_at, p in enumerate(batch)}
    behind |= {w: len(batch) + a for a, w in zip(kept, window, strict=True) if a < lead}
    places = [behind[i] for i in range(total - (rank - lead))]
    unit = [len(batch) + a for a in inserted]
    rows = call.transpose(rows, [*places, *unit])
    if x.dtype is DType.BOOL and join != "none":
        flags = [call.convert(t, DType.U8) for t in (x, updates)]
        join = _OF_BOOLS.get(join, join)
        made = indexing.place(call, flags[0], rows, flags[1], x.shape[:lead], join)
        return call.convert(made, DType.BOOL)
    return indexing.place(call, x, rows, updates, x.shape[:lead], join)


def _window_rows(
    call: TfliteCall,
    shape: Sequence[int],
    sizes: Sequence[int],
    axes: Sequence[int],
    starts: Tensor,
) -> Tensor:
    """Flat positions of window elements within `shape`: [..., *sizes]; elements outside get the
    number after the last position."""
    _need_window(sizes)
    depth, limits = len(axes), np.array([shape[a] for a in axes], np.int64)
    spans = np.array([sizes[a] for a in axes], np.int64)
    # Starts further outside give the same result, so clamp them first.
    near = _clamp(call, starts, -spans, limits)
    ones = (1,) * len(sizes)
    call.builder.need_room((*sizes, depth), np.int64)
    steps = np.stack([np.indices(sizes)[a] for a in axes], -1)
    near = call.reshape(near, (*starts.shape[:-1], *ones, depth))
    at = call.emit(ops.Add(), near, call.constant(steps.astype(near.dtype.numpy)))
    within = _clamp(call, at, np.zeros(depth), limits - 1)
    others = [1 if i in axes else s for i, s in enumerate(sizes)]
    rows = _flat_positions(call, shape, axes, within)
    grid = call.constant(_window_positions(others, shape).astype(rows.dtype.numpy))
    rows = call.emit(ops.Add(), rows, grid)
    hit = call.emit(ops.ReduceMin((len(at.shape) - 1,)), call.emit(ops.Equal(), at, within))
    return call.emit(ops.Where(), hit, rows, call.scalar(math.prod(shape), rows))


def _option_vector(call: TfliteCall, name: str) -> tuple[int, ...]:
    return call.operator.option_vector(name) or ()


def _option_axes(call: TfliteCall, name: str, rank: int) -> tuple[int, ...]:
    found = _option_vector(call, name)
    if len({*found}) != len(found) or not all(0 <= a < rank for a in found):
        raise ShapeError(f"expected axes of {rank} as {name}, found {list(found)[:8]}")
    return found


def _index_tuples(call: TfliteCall, index: int, depth: int) -> Tensor:
    """Indices with tuples of `depth` on the last axis."""
    indices = call.tensor(index, "indices")
    if indices.dtype not in (DType.I32, DType.I64):
        raise ShapeError(f"expected indices of s32 or s64, found {indices.dtype.value}")
    axis = call.option("IndexVectorDim")
    if axis == len(indices.shape):
        indices = call.reshape(indices, (*indices.shape, 1))
    if depth < 1 or not 0 <= axis < len(indices.shape) or indices.shape[axis] != depth:
        raise ShapeError(f"expected tuples of {depth} indices, found {list(indices.shape)}")
    return call.last(indices, axis)


def _clamp(call: TfliteCall, x: Tensor, low: Array, high: Sequence[int] | Array) -> Tensor:
    kind = x.dtype.numpy
    top = call.emit(ops.Minimum(), x, call.constant(np.array(high).astype(kind)))
    return call.emit(ops.Maximum(), top, call.constant(np.array(low).astype(kind)))


def _flat_positions(
    call: TfliteCall, shape: Sequence[int], axes: Sequence[int], at: Tensor
) -> Tensor:
    """Flat positions in `shape` of coordinates on `axes`; axes beyond it are ignored."""
    steps = [math.prod(shape[a + 1 :]) if a < len(shape) else 0 for a in axes]
    parts = call.emit(ops.Mul(), at, call.constant(np.array(steps).astype(at.dtype.numpy)))
    return call.emit(ops.ReduceSum((len(at.shape) - 1,)), parts)


def _window_positions(sizes: Sequence[int], shape: Sequence[int]) -> Array:
    """Flat positions of a window at the origin of `shape`."""
    _need_window(sizes)
    grid = np.zeros((), np.int64)
    for axis, size in enumerate(sizes):
        grid = grid[..., None] + np.arange(size) * math.prod(shape[axis + 1 :])
    return grid


def _need_window(sizes: Sequence[int]) -> None:
    if math.prod(sizes) > _WINDOW_LIMIT:
        raise ShapeError(f"expected a window of at most {_WINDOW_LIMIT}, found {list(sizes)}")
