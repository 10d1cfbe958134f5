"""Import of ONNX operators with data-dependent output length, in upper-bound buffers.

Valid elements come first, in order; `Bounded` (bounded.py) tracks the count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import need_rank
from edgekit.host.compiler.frontends.common.extent import distance, extent, is_exact
from edgekit.host.compiler.frontends.common.lengths import (
    ROWS_LIMIT,
    check_rows,
    length_of,
    packed,
)
from edgekit.host.compiler.frontends.onnx import shape
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.order import signed
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Shape, ShapeError, Tensor

_COLUMNS_LIMIT = 256  # distinct-row search sorts once per column
_RANGE_LIMIT = 1 << 28  # elements of a constant range
_UNHEARD = 1 << 40  # rows that no buffer has
_ROUNDING = 2.0**-24  # of f32, relative


def _empty_buffer(call: OnnxCall, shape: Shape, kind: np.dtype[Any]) -> Tensor:
    """A buffer without valid elements."""
    return call.counted(call.constant(np.zeros(shape, kind)), call.constant(np.zeros(1, np.int64)))


def non_max_suppression(call: OnnxCall) -> Tensor:
    """Rows (image, class, box), with the largest possible count; unused rows are -1."""
    boxes, scores = call.x(0), call.x(1)
    need_rank(boxes, 3)
    need_rank(scores, 3)
    images, classes, n = scores.shape
    limit = min(call.single(2, "largest number") if call.maybe(2) is not None else 0, n)
    if limit < 1:
        return _empty_buffer(call, (0, 3), np.dtype(np.int64))
    check_rows(images * classes * limit)
    overlap = call.numbers(3, "overlap")[0] if call.maybe(3) is not None else 0.0
    threshold = call.numbers(4, "threshold")[0] if call.maybe(4) is not None else -math.inf
    valid = call.bounded.valid(scores)
    if valid is not None:
        if valid.shape != (n,):
            raise ShapeError("expected a data-dependent number of boxes, found one of classes")
        scores = call.emit(ops.Where(), valid, scores, call.scalar(-math.inf, scores))
    ranked, order = call.builder.emit_all(ops.TopK(n, index=DType.I32), [scores])
    op = ops.SelectBoxes(limit, overlap, threshold, above=True)
    chosen = call.emit(op, _box_corners(call, boxes), order, ranked)
    numbers = np.indices(chosen.shape).reshape(3, -1, 1)
    rows = [call.constant(part.astype(np.int64)) for part in numbers[:2]]
    rows.append(call.convert(call.reshape(chosen, (chosen.elements, 1)), DType.I64))
    there = call.emit(ops.LessOrEqual(), call.scalar(0, rows[2]), rows[2])
    kept = packed(call, call.emit(ops.Concat(1), *rows), there, -1)
    return call.counted(kept, length_of(call, there))


def _box_corners(call: OnnxCall, boxes: Tensor) -> Tensor:
    """[b, n, 4]: minimum y and x, maximum y and x."""
    first, second = call.builder.emit_all(ops.Split(2, (2, 2)), [boxes])
    if call.integer("center_point_box", 0):
        half = call.emit(ops.Mul(), second, call.scalar(0.5, second))
        low, high = call.emit(ops.Sub(), first, half), call.emit(ops.Add(), first, half)
    else:
        low, high = call.emit(ops.Minimum(), first, second), call.emit(ops.Maximum(), first, second)
    return call.emit(ops.Concat(2), low, high)


def compress(call: OnnxCall) -> Tensor:
    """The elements of an axis, or of flattened x, selected by a condition; then zeros."""
    x, condition = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis"), len(x.shape)) if call.has("axis") else 0
    x = x if call.has("axis") else call.reshape(x, (x.elements,))
    count = condition.elements
    if count > x.shape[axis]:
        raise ShapeError(f"expected at most {x.shape[axis]} conditions, found {count}")
    if condition.data is not None:
        places = np.flatnonzero(condition.data).astype(np.int64)
        return call.emit(ops.Gather(axis), x, call.constant(places))
    check_rows(count)
    order = [axis, *(i for i in range(len(x.shape)) if i != axis)]
    rows = call.transpose(x, order)
    if count < rows.shape[0]:
        rows = call.split(rows, 0, (count, rows.shape[0] - count))[0]
    rows = packed(call, rows, condition, 0)
    y = call.transpose(rows, [order.index(i) for i in range(len(order))])
    return call.counted(y, length_of(call, condition), axis)


def arange(call: OnnxCall) -> Tensor:
    """start + i · delta up to the limit; a computed range is followed by zeros."""
    if any(call.x(i).elements != 1 for i in range(3)):
        sizes = [call.x(i).elements for i in range(3)]
        raise ShapeError(f"expected three scalars, found {sizes} values")
    if all(call.x(i).data is not None for i in range(3)):
        return _constant_range(call)
    kind = call.x(0).dtype
    wide = DType.F32 if kind.is_float else DType.I64
    start, limit, delta = (call.reshape(call.convert(call.x(i), wide), ()) for i in range(3))
    count, capped = _most_steps(call, start, limit, delta)
    if count == 0:
        return _empty_buffer(call, (0,), kind.numpy)
    exact = distance(call.builder, start, limit) is not None and delta.data is not None
    count += 0 if exact else call.bounded.spare
    numbers = call.constant(np.arange(count).astype(wide.numpy))
    values = call.emit(ops.Add(), start, call.emit(ops.Mul(), numbers, delta))
    if wide is DType.F32:
        steps = call.emit(ops.Div(), call.emit(ops.Sub(), limit, start), delta)
        there = call.emit(ops.Less(), numbers, call.emit(ops.Ceil(), steps))
    else:
        there = call.emit(ops.Less(), values, limit)
        if extent(call.builder, delta)[0] < 0:
            up = call.emit(ops.Less(), call.scalar(0, delta), delta)
            there = call.emit(ops.Where(), up, there, call.emit(ops.Less(), limit, values))
    if exact:
        return call.convert(values, kind)
    found = call.convert(call.emit(ops.Where(), there, values, call.scalar(0, values)), kind)
    counts = start.data is not None and start.data == 0 and delta.data is not None
    counts = counts and delta.data == 1
    if counts and call.bounded.add_alike(found, limit):
        return found
    needed = _needed_rows(call, start, limit, delta) if capped else None

    def made() -> list[Tensor]:
        return [length_of(call, there)]

    # Ranges to one limit have the same rows, whatever their type: where f32 rounds an integer,
    # there are more than any buffer has.
    alone = not counts or call.builder.repeats > 1
    key = ("range", _integer_source(call, limit).name, count)
    (length,) = made() if alone else call.builder.once(key, made)
    return call.counted(found, length, 0, needed)


def _integer_source(call: OnnxCall, x: Tensor) -> Tensor:
    """The integer that was converted to `x`, in its first type."""
    while (node := call.builder.producer(x.name)) is not None:
        source = call.builder.tensor(node.inputs[0]) if node.inputs and node.inputs[0] else x
        converted = isinstance(node.op, ops.Convert) and not source.dtype.is_float
        if source.elements != 1 or not (converted or isinstance(node.op, ops.Reshape)):
            break
        x = source
    return x


def _needed_rows(call: OnnxCall, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """The length of a range without a bound, [1] s64."""
    steps = call.convert(call.emit(ops.Sub(), limit, start), DType.F32)
    if delta.data is None or delta.data != 1:
        steps = call.emit(ops.Div(), steps, call.convert(delta, DType.F32))
    steps = call.emit(ops.Minimum(), call.emit(ops.Ceil(), steps), call.scalar(_UNHEARD, steps))
    return call.convert(call.reshape(steps, (1,)), DType.I64)


def _constant_range(call: OnnxCall) -> Tensor:
    """As many numbers as in ONNX Runtime, which counts in f64 whatever the type."""
    start, limit, delta = (call.value(i, "bounds").reshape(-1)[0] for i in range(3))
    steps = (float(limit) - float(start)) / float(delta) if delta else math.nan
    # Written so that NaN fails.
    if not abs(steps) <= _RANGE_LIMIT or math.isinf(float(delta)):
        raise ShapeError(f"expected a range that ends, found {start} to {limit} by {delta}")
    count = max(math.ceil(steps), 0)
    call.builder.need_room((count,), np.int64)
    numbers = np.arange(count).astype(start.dtype)
    return call.constant(start + numbers * delta)


def _most_steps(call: OnnxCall, start: Tensor, limit: Tensor, delta: Tensor) -> tuple[int, bool]:
    """The maximum length of a computed range, and whether data may ask for more."""
    low, high = _difference_range(call, start, limit)
    least, most = extent(call.builder, delta)
    if not start.dtype.is_float and least <= 0 <= most:
        least, most = (1, most) if most > 0 else (least, -1)
        steps = max(high, -low)
    elif least > 0:
        steps = high / least
    elif most < 0:
        steps = low / most
    else:
        steps = math.inf
    if not steps <= ROWS_LIMIT:
        if (most_rows := call.bounded.most_rows) is not None:
            return most_rows, True
        raise ShapeError(
            f"expected constant bounds, or computed ones at most {ROWS_LIMIT} apart for any data, "
            f"found {steps:g}; --max-rows N sets the largest"
        )
    return max(math.ceil(steps), 0), False


def _difference_range(call: OnnxCall, start: Tensor, limit: Tensor) -> tuple[float, float]:
    """The range of limit − start; exact if the limit is start + n."""
    known = distance(call.builder, start, limit)
    if known is not None:
        return known, known
    (a, b), (c, d) = extent(call.builder, start), extent(call.builder, limit)
    low, high = c - b, d - a
    node = call.builder.producer(limit.name)
    if node is not None and isinstance(node.op, ops.Add) and start.name in node.inputs:
        other = node.inputs[1 - node.inputs.index(start.name)]
        assert other is not None
        low, high = extent(call.builder, call.builder.tensor(other))
        if not is_exact(call.builder, limit, start.dtype):
            slack = max(abs(c), abs(d)) * _ROUNDING
            low, high = low - slack, high + slack
    return low, high


def slice_(call: OnnxCall) -> Tensor:
    """Constant slices, or a slice of one axis with a computed start, end or both."""
    if all(call.x(i).data is not None for i in (1, 2)):
        return shape.slice_(call)
    x, start, end = (call.x(i) for i in range(3))
    axes = call.integers(3, "axes") if call.maybe(3) is not None else (0,)
    steps = call.integers(4, "steps") if call.maybe(4) is not None else (1,)
    if not start.elements == end.elements == len(axes) == 1 or steps != (1,):
        raise ShapeError(
            "expected constants, or a computed start and end of one axis with step 1, "
            f"found {len(axes)} axes with steps {list(steps)}"
        )
    axis = call.axis(axes[0], len(x.shape))
    size = x.shape[axis]
    start, end = (call.reshape(call.convert(t, DType.I64), ()) for t in (start, end))
    (low, _), (_, high) = (extent(call.builder, t) for t in (start, end))
    most = distance(call.builder, start, end)
    inside = low >= 0 and high <= size
    if not inside:
        start, end = _clamp_index(call, start, size), _clamp_index(call, end, size)
    if most is None or not inside:
        most = max(
            min(most or size, size, math.ceil(min(_difference_range(call, start, end)[1], size))), 1
        )
    count = call.emit(ops.Sub(), end, start)
    numbers = call.counting((most,))
    found = call.emit(ops.Gather(axis), x, call.emit(ops.Add(), start, numbers))
    if inside and distance(call.builder, start, end) == most:
        return found
    there = call.emit(ops.Less(), numbers, count)
    along = call.reshape(there, (most, *(1,) * (len(x.shape) - 1 - axis)))
    kept = call.emit(ops.Where(), along, found, call.scalar(0, found))
    return call.counted(kept, length_of(call, there), axis)


def _clamp_index(call: OnnxCall, place: Tensor, size: int) -> Tensor:
    """An index wrapped if negative, then clamped to 0..size."""
    if extent(call.builder, place)[0] < 0:
        back = call.emit(ops.Add(), place, call.scalar(size, place))
        negative = call.emit(ops.Less(), place, call.scalar(0, place))
        place = call.emit(ops.Where(), negative, back, place)
    at_least = call.emit(ops.Maximum(), place, call.scalar(0, place))
    return call.emit(ops.Minimum(), at_least, call.scalar(size, place))


def unique(call: OnnxCall) -> list[Tensor]:
    """[values, first positions, inverse indices, counts]; unused elements are 0."""
    x = call.x(0)
    axis = call.axis(call.integer("axis"), len(x.shape)) if call.has("axis") else None
    if x.data is not None:
        return _constant_unique(call, axis)
    if axis is None:
        rows, order_of_axes = call.reshape(x, (x.elements,)), None
    else:
        order_of_axes = [axis, *(i for i in range(len(x.shape)) if i != axis)]
        rows = call.transpose(x, order_of_axes)
    count = rows.shape[0] if rows.elements else 0
    check_rows(count)
    order = _order_of_rows(call, rows)
    ordered = call.emit(ops.Gather(0), rows, order)
    new = _differs_from_previous(call, ordered)
    length = length_of(call, new)
    group = call.emit(
        ops.Sub(), running_total(call, call.convert(new, DType.I64)), _constant_one(call)
    )
    place = call.counting((count,))
    starts = packed(call, place, new, count)
    ends = call.emit(ops.Concat(0), *_behind_first(call, starts), call.constant(np.array([count])))
    counts = call.emit(ops.Sub(), ends, starts)
    values, first = packed(call, ordered, new, 0), packed(call, order, new, count)
    if not call.integer("sorted", 1):
        _, by_first = _stable_sort(call, first, smallest=True)
        values, first, counts = (
            call.emit(ops.Gather(0), t, by_first) for t in (values, first, counts)
        )
        group = call.emit(ops.Gather(0), _invert_permutation(call, by_first), group)
    inverse = call.emit(ops.Scatter(), call.constant(np.zeros(count, np.int64)), order, group)
    there = call.emit(ops.Less(), place, length)
    first = call.emit(ops.Where(), there, first, call.scalar(0, first))
    if order_of_axes is not None:
        values = call.transpose(values, [order_of_axes.index(i) for i in range(len(order_of_axes))])
    values = call.counted(values, length, axis or 0)
    return [values, call.counted(first, length), inverse, call.counted(counts, length)]


def _constant_unique(call: OnnxCall, axis: int | None) -> list[Tensor]:
    x = call.value(0, "values")
    found, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not call.integer("sorted", 1):
        order = np.argsort(first)
        found = np.take(found, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    numbers = (first, inverse.reshape(-1), counts)
    return [call.constant(found), *(call.constant(v.astype(np.int64)) for v in numbers)]


def _order_of_rows(call: OnnxCall, rows: Tensor) -> Tensor:
    """The argsort of `rows` [n, ...] in lexicographic order, [n] s64: stable sorts from the last
    column to the first."""
    count, width = rows.shape[0], rows.elements // rows.shape[0]
    if width > _COLUMNS_LIMIT:
        raise ShapeError(
            f"expected unique rows of at most {_COLUMNS_LIMIT} elements, found {width}"
        )
    if rows.dtype is DType.BOOL:
        rows = call.convert(rows, DType.U8)
    columns = call.transpose(call.reshape(rows, (count, width)), (1, 0))
    order: Tensor | None = None
    for column in reversed(range(width)):
        pick = ops.StridedSlice((column, 0), (1, 1), (1, count), (count,))
        keys = call.emit(pick, columns)
        if order is not None:
            keys = call.emit(ops.Gather(0), keys, order)
        _, by_column = _stable_sort(call, keys, smallest=True)
        order = by_column if order is None else call.emit(ops.Gather(0), order, by_column)
    assert order is not None
    return order


def _stable_sort(call: OnnxCall, keys: Tensor, smallest: bool) -> list[Tensor]:
    """[values, positions]; the sort is stable."""
    if keys.dtype in (DType.U16, DType.U32, DType.U64):
        keys = signed(call, keys)
    return call.builder.emit_all(ops.TopK(keys.shape[0], smallest), [keys])


def _differs_from_previous(call: OnnxCall, rows: Tensor) -> Tensor:
    """Whether each of `rows` [n, ...] differs from its predecessor, [n]; true for the first."""
    count, width = rows.shape[0], rows.elements // rows.shape[0]
    flat = call.reshape(rows, (count, width))
    first = call.constant(np.ones(1, np.bool_))
    if count == 1:
        return first
    late = ops.StridedSlice((1, 0), (1, 1), (count - 1, width), (count - 1, width))
    early = ops.StridedSlice((0, 0), (1, 1), (count - 1, width), (count - 1, width))
    alike = call.emit(ops.Equal(), call.emit(late, flat), call.emit(early, flat))
    numbers = call.convert(call.emit(ops.Not(), alike), DType.I32)
    other = call.convert(call.emit(ops.ReduceMax((1,), False), numbers), DType.BOOL)
    return call.emit(ops.Concat(0), first, other)


def _behind_first(call: OnnxCall, x: Tensor) -> list[Tensor]:
    count = x.shape[0] - 1
    return [call.emit(ops.StridedSlice((1,), (1,), (count,), (count,)), x)] if count else []


def _invert_permutation(call: OnnxCall, order: Tensor) -> Tensor:
    numbers = call.counting(order.shape)
    return call.emit(ops.Scatter(), numbers, order, numbers)


def _constant_one(call: OnnxCall) -> Tensor:
    return call.constant(np.array(1, np.int64))


def running_total(call: OnnxCall, x: Tensor) -> Tensor:
    """Running totals of integers [n], in log n additions."""
    count, step = x.shape[0], 1
    while step < count:
        early = call.emit(ops.StridedSlice((0,), (1,), (count - step,), (count - step,)), x)
        x = call.emit(ops.Add(), x, call.emit(ops.Pad((step,), (0,)), early))
        step *= 2
    return x
