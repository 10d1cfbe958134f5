"""Import of ONNX operators with a size that data say, and of joins of rows that data count, or that
are selected again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.common.extent import extent
from edgekit.host.compiler.frontends.common.lengths import ROWS_LIMIT, length_of, packed, places
from edgekit.host.compiler.frontends.onnx import shape
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, Tensor


@dataclass(frozen=True, eq=False)
class _Sizes:
    """A shape with a size along `axis` that data say: `count` [1] s64, at most shape[axis] unless
    `capped`."""

    shape: Shape
    axis: int
    count: Tensor
    capped: bool


def non_zero(call: OnnxCall) -> Tensor:
    """Positions of non-zero elements, one per column; unused columns are -1."""
    x = call.x(0)

    def found() -> list[Tensor]:
        rows, length = places(call, call.reshape(_without_filler(call, x), x.shape or (1,)))
        return [rows] if length is None else [rows, length]

    in_loop = call.builder.repeats > 1
    # Selections by one mask have the same rows.
    rows, *length = found() if in_loop else call.builder.once(("places", x.name), found)
    columns = call.transpose(rows, (1, 0))
    return call.counted(columns, length[0], 1) if length else columns


def _without_filler(call: OnnxCall, x: Tensor) -> Tensor:
    """`x` with zeros in place of rows that are not valid."""
    valid, axes = call.bounded.valid(x), call.bounded.axes(x)
    if valid is None:
        return x
    if len(axes) != 1:
        raise ShapeError("expected one axis of a data-dependent length, found several")
    sizes = tuple(n if i == axes[0] else 1 for i, n in enumerate(x.shape))
    return call.emit(ops.Where(), call.reshape(valid, sizes), x, call.scalar(0, x))


def constant_of_shape(call: OnnxCall) -> Tensor:
    """One value in a shape that is constant but for one computed size."""
    if call.x(0).data is not None:
        return shape.constant_of_shape(call)
    sizes = _computed_sizes(call, call.x(0))
    filler = call.attributes.get("value")
    value = np.zeros(1, np.float32) if filler is None else np.asarray(filler).reshape(-1)
    return _counted(call, call.filled((1,) * len(sizes.shape), value[0], value.dtype), sizes)


def expand(call: OnnxCall) -> Tensor:
    """x repeated along axes of size 1, one of them as often as data say."""
    if call.x(1).data is not None:
        return shape.expand(call)
    x, sizes = call.x(0), _computed_sizes(call, call.x(1))
    at = sizes.axis + len(x.shape) - len(sizes.shape)
    if at in call.bounded.axes(x) and call.bounded.add_alike(x, sizes.count):
        return x  # as many rows as it has
    rank = max(len(x.shape), len(sizes.shape))
    x = call.reshape(x, (*(1,) * (rank - len(x.shape)), *x.shape))
    ahead = rank - len(sizes.shape)
    sizes = _Sizes((*(1,) * ahead, *sizes.shape), sizes.axis + ahead, sizes.count, sizes.capped)
    if x.shape[sizes.axis] != 1:
        raise ShapeError(
            f"expected a computed size along an axis of size 1, found {list(x.shape)} to expand"
        )
    return _counted(call, x, sizes)


def _counted(call: OnnxCall, x: Tensor, sizes: _Sizes) -> Tensor:
    """x broadcast to the shape, with zeros behind the rows that data ask for."""
    bound, behind = sizes.shape[sizes.axis], len(sizes.shape) - 1 - sizes.axis
    there = call.emit(ops.Less(), call.counting((bound,)), sizes.count)
    along = call.reshape(there, (bound, *(1,) * behind))
    wide = np.broadcast_shapes(x.shape, sizes.shape)
    made = call.emit(ops.Where(), along, x, call.scalar(0, x))
    if made.shape != wide:
        made = call.emit(ops.BroadcastTo(wide), made)
    needed = sizes.count if sizes.capped else None
    return call.counted(made, length_of(call, there), sizes.axis, needed)


def _computed_sizes(call: OnnxCall, asked: Tensor) -> _Sizes:
    """A shape of which all sizes but one are the same for any data."""
    sizes: list[int] = []
    found: tuple[int, Tensor, bool] | None = None
    for axis in range(asked.elements):
        size = call.emit(ops.StridedSlice((axis,), (1,), (1,), (1,)), asked)
        low, high = extent(call.builder, size)
        if low == high:
            sizes.append(int(low))
            continue
        if found is not None:
            raise ShapeError("expected a shape with one computed size, found several")
        capped = not high <= ROWS_LIMIT
        if capped and call.bounded.most_rows is None:
            raise ShapeError(
                f"expected a constant size, or a computed one of at most {ROWS_LIMIT} for any "
                f"data, found {high:g} along axis {axis}; --max-rows N sets the largest"
            )
        most = call.bounded.most_rows if capped else max(int(high), 1)
        assert most is not None
        sizes.append(most + call.bounded.spare)
        found = axis, call.convert(size, DType.I64), capped
    if found is None:
        raise ShapeError("expected a computed shape that depends on data, found a constant one")
    return _Sizes(shape.checked_shape(sizes), *found)


def concat(call: OnnxCall) -> Tensor:
    """Joins along the axis of rows of which some are filler put the valid rows first."""
    parts = call.all()
    axis = call.axis(call.integer("axis", 1 if call.opset < 4 else None), len(parts[0].shape))
    if not any(axis in call.bounded.axes(p) for p in parts):
        return shape.concat(call)
    if len(parts) == 1:
        return parts[0]
    order = [axis, *(i for i in range(len(parts[0].shape)) if i != axis)]
    rows = [call.transpose(p, order) for p in parts]
    there, length = _joined_flags(call, parts, axis)
    joined = packed(call, call.emit(ops.Concat(0), *rows), there, 0)
    y = call.transpose(joined, [order.index(i) for i in range(len(order))])
    return call.counted(y, length, axis)


def _joined_flags(call: OnnxCall, parts: Sequence[Tensor], axis: int) -> list[Tensor]:
    """Which rows of all parts are valid, and their number: one tensor for parts that have the same
    rows, such as the boxes and the scores of several grids."""
    known = [
        call.bounded.valid(part) if axis in call.bounded.axes(part) else None for part in parts
    ]
    sizes = [part.shape[axis] for part in parts]

    def made() -> list[Tensor]:
        flags = [
            call.filled((size,), True, np.bool_) if flag is None else flag
            for flag, size in zip(known, sizes, strict=True)
        ]
        there = call.emit(ops.Concat(0), *flags)
        return [there, length_of(call, there)]

    if call.builder.repeats > 1:
        return made()
    names = (size if flag is None else flag.name for flag, size in zip(known, sizes, strict=True))
    return call.builder.once(("joined", *names), made)
