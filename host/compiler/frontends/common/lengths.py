"""Import handlers of every format for results of data-dependent length, in upper-bound buffers.

Valid elements come first, in order; `Bounded` (bounded.py) tracks the count.
"""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.frontends.common.emitter import Emitter
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor

ROWS_LIMIT = 1 << 22


def check_rows(count: int) -> None:
    if not 0 < count <= ROWS_LIMIT:
        raise ShapeError(f"expected 1 to {ROWS_LIMIT} rows, found {count}")


def length_of(call: Emitter, there: Tensor) -> Tensor:
    """The number of true elements of `there` (bool, any shape), [1] s64."""
    numbers = call.convert(call.reshape(there, (there.elements,)), DType.I64)
    return call.emit(ops.ReduceSum((0,), True), numbers)


def packed(call: Emitter, rows: Tensor, there: Tensor, filler: int) -> Tensor:
    """The rows of `rows` [n, ...] whose flag in `there` [n] is set, in order, then `filler`."""
    count = rows.shape[0]
    marks = call.convert(call.reshape(there, (count,)), DType.U8)
    _, order = call.builder.emit_all(ops.TopK(count), [marks])
    along = call.reshape(there, (count, *(1,) * (len(rows.shape) - 1)))
    known = call.emit(ops.Where(), along, rows, call.scalar(filler, rows))
    return call.emit(ops.Gather(0), known, order)


def places(call: Emitter, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Positions of non-zero elements of x (rank 1 or more): rows of s64 coordinates in memory
    order, then rows of -1; and the number of valid rows, or None if all are."""
    if x.data is not None:
        return call.constant(np.argwhere(x.data).astype(np.int64)), None
    check_rows(x.elements)
    call.builder.need_room((x.elements, len(x.shape)), np.int64)
    rows = np.indices(x.shape).reshape(len(x.shape), -1).T.astype(np.int64)
    there = call.convert(x, DType.BOOL)
    return packed(call, call.constant(rows), there, -1), length_of(call, there)
