"""ONNX operators that order values, and those whose results are as long as the data say."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.types import DType, ShapeError, Tensor
from edgekit.host.importers.emitter import need_rank
from edgekit.host.importers.onnx_call import Call

_ROWS_LIMIT = 1 << 22
_HIGHEST_BIT = 1 << 63


def top_k(call: Call) -> list[Tensor]:
    """[values, indices]; always sorted, which `sorted` = 0 allows."""
    x = call.x(0)
    axis = call.axis(call.integer("axis", -1), len(x.shape))
    k = call.single(1, "k") if call.opset >= 10 else call.integer("k")
    op = ops.TopK(k, not call.integer("largest", 1))
    keys = call.last(x, axis)
    if x.dtype not in (DType.U64, DType.U32, DType.U16):
        made = call.builder.emit_all(op, [keys], x.quant)
        return [call.back(t, axis) for t in made]
    values, places = call.builder.emit_all(op, [_signed(call, keys)])
    if x.dtype is DType.U64:
        bits = call.emit(ops.BitCast(DType.U64), values)
        values = call.emit(ops.BitwiseXor(), bits, call.scalar(_HIGHEST_BIT, bits))
    return [call.back(t, axis) for t in (call.convert(values, x.dtype), places)]


def _signed(call: Call, x: Tensor) -> Tensor:
    """Unsigned numbers as s64 in the same order."""
    if x.dtype is not DType.U64:
        return call.convert(x, DType.I64)
    turned = call.emit(ops.BitwiseXor(), x, call.scalar(_HIGHEST_BIT, x))
    return call.emit(ops.BitCast(DType.I64), turned)


def non_max_suppression(call: Call) -> Tensor:
    """Rows of image, class and box, as many as can stay; those behind the last are -1."""
    boxes, scores = call.x(0), call.x(1)
    need_rank(boxes, 3)
    need_rank(scores, 3)
    images, classes, n = scores.shape
    limit = min(call.single(2, "largest number") if call.maybe(2) is not None else 0, n)
    if limit < 1:
        return call.constant(np.zeros((0, 3), np.int64))
    _check_rows(images * classes * limit)
    overlap = call.numbers(3, "overlap")[0] if call.maybe(3) is not None else 0.0
    threshold = call.numbers(4, "threshold")[0] if call.maybe(4) is not None else -math.inf
    ranked, order = call.builder.emit_all(ops.TopK(n, index=DType.I32), [scores])
    op = ops.SelectBoxes(limit, overlap, threshold, above=True)
    chosen = call.emit(op, _corners(call, boxes), order, ranked)
    places = np.indices(chosen.shape).reshape(3, -1, 1)
    rows = [call.constant(part.astype(np.int64)) for part in places[:2]]
    rows.append(call.convert(call.reshape(chosen, (chosen.elements, 1)), DType.I64))
    there = call.emit(ops.LessOrEqual(), call.scalar(0, rows[2]), rows[2])
    return _packed(call, call.emit(ops.Concat(1), *rows), there)


def non_zero(call: Call) -> Tensor:
    """The places of elements that are not 0, one a column; columns behind the last are -1."""
    x = call.x(0)
    shape = x.shape or (1,)
    _check_rows(x.elements)
    if x.data is not None:
        return call.constant(np.stack(np.nonzero(x.data.reshape(shape))).astype(np.int64))
    places = np.indices(shape).reshape(len(shape), -1).T.astype(np.int64)
    there = call.reshape(call.convert(x, DType.BOOL), (x.elements, 1))
    return call.transpose(_packed(call, call.constant(places), there), (1, 0))


def unique(call: Call) -> list[Tensor]:
    """Of constants only: how long the results are depends on the values."""
    x = call.value(0, "values")
    axis = call.axis(call.integer("axis"), x.ndim) if call.has("axis") else None
    found, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not call.integer("sorted", 1):
        order = np.argsort(first)
        found = np.take(found, order, axis=axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    numbers = (first, inverse.reshape(-1), counts)
    return [call.constant(found), *(call.constant(v.astype(np.int64)) for v in numbers)]


def _check_rows(count: int) -> None:
    if not 0 < count <= _ROWS_LIMIT:
        raise ShapeError(f"expected from 1 to {_ROWS_LIMIT} rows that may stay, found {count}")


def _corners(call: Call, boxes: Tensor) -> Tensor:
    """[b, n, 4]: smaller y and x, larger y and x."""
    first, second = call.builder.emit_all(ops.Split(2, (2, 2)), [boxes])
    if call.integer("center_point_box", 0):
        half = call.emit(ops.Mul(), second, call.scalar(0.5, second))
        low, high = call.emit(ops.Sub(), first, half), call.emit(ops.Add(), first, half)
    else:
        low, high = call.emit(ops.Minimum(), first, second), call.emit(ops.Maximum(), first, second)
    return call.emit(ops.Concat(2), low, high)


def _packed(call: Call, rows: Tensor, there: Tensor) -> Tensor:
    """Those of `rows` [n, k] that are `there` [n, 1], in their order, then rows of -1."""
    count = rows.shape[0]
    marks = call.convert(call.reshape(there, (count,)), DType.U8)
    _, order = call.builder.emit_all(ops.TopK(count, index=DType.I32), [marks])
    known = call.emit(ops.Where(), there, rows, call.scalar(-1, rows))
    return call.emit(ops.Gather(0), known, order)
