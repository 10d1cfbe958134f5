"""Import of ONNX branches: resolved, or both computed and one selected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.host.compiler.frontends.common.lengths import length_of
from edgekit.host.compiler.frontends.common.refusal import MisfitInputError
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.types import TensorList, Value
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor


def if_(call: OnnxCall) -> list[Value | None]:
    """The branch selected by a constant condition, or both branches with a select per output.

    With a computed condition, a branch may not fit the input shapes, for example if it is for
    another sampling rate. No engine could run it, so it is dropped with a note to the user.
    """
    condition = scalar_condition(call, call.x(0))
    branches = [call.graph("then_branch"), call.graph("else_branch")]
    if condition.data is not None:
        return list(call.run(branches[not condition.data], []))
    fitting: list[Sequence[Value | None]] = []
    refusals: list[MisfitInputError] = []
    for branch in branches:
        try:
            fitting.append(call.run(branch, []))
        except MisfitInputError as error:
            refusals.append(error)
    if refusals:
        if not fitting:
            raise refusals[0]
        call.builder.note(
            f"{call.node.shown}: dropped a branch that does not fit the shapes of the inputs: "
            f"{str(refusals[0]).partition(';')[0]}"
        )
        return list(fitting[0])
    made = fitting
    if len(made[0]) != len(made[1]):
        raise ShapeError(
            f"expected {len(made[0])} outputs from both branches, found {len(made[1])}"
        )
    return [select_value(call, condition, a, b) for a, b in zip(*made, strict=True)]


def scalar_condition(call: OnnxCall, x: Tensor) -> Tensor:
    if x.elements != 1 or x.dtype is not DType.BOOL:
        raise ShapeError(f"expected one bool as condition, found {x.dtype.value}{list(x.shape)}")
    return call.reshape(x, ())


def select_value(
    call: OnnxCall, condition: Tensor, a: Value | None, b: Value | None
) -> Value | None:
    """Selects a where the computed condition is true, else b."""
    if a is b:
        return a
    if isinstance(a, TensorList) and isinstance(b, TensorList) and len(a.items) == len(b.items):
        pairs = zip(a.items, b.items, strict=True)
        return TensorList(tuple(_where(call, condition, x, y) for x, y in pairs))
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise ShapeError("expected values of one kind from both branches, found two kinds")
    return _where(call, condition, a, b)


def _rows_or_none(call: OnnxCall, condition: Tensor, a: Tensor, b: Tensor) -> Tensor | None:
    """The rows of one branch, none of which are valid where the condition selects the other, which
    has no rows, as torchvision's non-maximum suppression of no boxes."""
    rows, empty = (b, a) if a.elements == 0 else (a, b)
    apart = [
        i for i, (n, none) in enumerate(zip(rows.shape, empty.shape, strict=False)) if n != none
    ]
    alike = len(a.shape) == len(b.shape) and a.dtype is b.dtype
    if not (alike and rows.elements and len(apart) == 1 and empty.shape[apart[0]] == 0):
        return None
    (axis,), axes = apart, call.bounded.axes(rows)
    if axes not in ((), (axis,)):
        return None
    taken = condition if rows is a else call.emit(ops.Not(), condition)
    there = call.bounded.valid(rows)
    if there is None:
        there = call.filled((rows.shape[axis],), True, np.bool_)
    there = call.emit(ops.And(), there, taken)
    kept = call.emit(ops.Where(), taken, rows, call.scalar(0, rows))
    return call.counted(kept, length_of(call, there), axis)


def _where(call: OnnxCall, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a.elements == b.elements == 1 and len(a.shape) < len(b.shape):
        a = call.reshape(a, b.shape)
    elif a.elements == b.elements == 1:
        b = call.reshape(b, a.shape)
    if (rows := _rows_or_none(call, condition, a, b)) is not None:
        return rows
    if a.shape != b.shape or a.dtype is not b.dtype:
        raise ShapeError(
            "expected a constant condition, or one shape and type from both branches, found "
            f"{a.dtype.value}{list(a.shape)} and {b.dtype.value}{list(b.shape)}"
        )
    return call.emit(ops.Where(), condition, a, b)
