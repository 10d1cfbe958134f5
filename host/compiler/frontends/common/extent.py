"""Derives the value range of a computed tensor from the operators that produce it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Node, Tensor

Extent = tuple[float, float]  # lowest and highest value; infinite if unbounded
_Known = dict[str, tuple[int, Extent]]  # by tensor: how far back was looked, and what was found

_ANY: Extent = (-math.inf, math.inf)
_EXACT = 1 << 24  # below this, f32 represents all integers
_DEPTH = 32  # operators to look back through
# Operators with integers as results if all operands are integers.
_WHOLE = (
    ops.Add, ops.Sub, ops.Mul, ops.Minimum, ops.Maximum, ops.Modulo, ops.ReduceSum, ops.Concat,
    ops.Where,
)  # fmt: skip
# Operators that pass values through or select some of them.
_PICKS = (
    ops.Reshape, ops.Transpose, ops.StridedSlice, ops.Split, ops.BroadcastTo, ops.Gather,
    ops.ReduceMax, ops.ReduceMin, ops.TopK,
)  # fmt: skip
# Operators whose results have a range that follows from those of their operands.
_FOLLOWED = (
    *_PICKS, *_WHOLE, ops.Convert, ops.Cast, ops.Floor, ops.Ceil, ops.RoundEven, ops.Clip,
    ops.Clamp, ops.Div, ops.FloorDiv,
)  # fmt: skip


def extent(builder: GraphBuilder, x: Tensor) -> Extent:
    """The value range of `x`: from its data, its operators, or its type."""
    return _extent(builder, x, _DEPTH, {})


def _extent(builder: GraphBuilder, x: Tensor, depth: int, known: _Known) -> Extent:
    if x.data is not None:
        return _of_constant(x)
    if x.name in known and known[x.name][0] >= depth:
        return known[x.name][1]
    low, high = _of_type(x.dtype)
    node = builder.producer(x.name)
    if node is None or depth == 0:
        return builder.limits.get(x.name, (low, high))
    given = [builder.tensor(name) for name in node.inputs if name is not None]
    found = _node_extent(builder, node, x, given, depth - 1, known)
    known[x.name] = depth, (max(low, found[0]), min(high, found[1]))
    return known[x.name][1]


def _of_constant(x: Tensor) -> Extent:
    assert x.data is not None
    if not x.elements or not bool(np.all(np.isfinite(x.data))):
        return _ANY
    return _to_python_number(x.data.min()), _to_python_number(x.data.max())


def _to_python_number(value: np.generic) -> float:
    """Keeps integers exact, however large."""
    number: float = value.item()
    return number


def _of_type(dtype: DType) -> Extent:
    if dtype is DType.BOOL:
        return 0, 1
    if dtype.is_float or dtype.bytes > 2:
        return _ANY
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def _node_extent(
    builder: GraphBuilder,
    node: Node,
    x: Tensor,
    given: Sequence[Tensor],
    depth: int,
    known: _Known,
) -> Extent:
    op = node.op
    if isinstance(op, ops.ArgExtreme):
        return 0, max(given[0].elements - 1, 0)
    if isinstance(op, ops.TopK) and node.outputs[1] == x.name:
        return 0, given[0].shape[-1] - 1
    if isinstance(op, ops.StridedSlice) and x.elements == 1 and len(given[0].shape) == 1:
        return _of_element(builder, given[0], op.begin[0], depth, known)
    if isinstance(op, ops.ReduceMin | ops.ReduceMax) and x.elements == 1:
        joined = _joined(builder, given[0])
        ends = zip(*(_extent(builder, part, depth, known) for part in joined), strict=True)
        low, high = map(min if isinstance(op, ops.ReduceMin) else max, ends)
        return low, high
    if not isinstance(op, _FOLLOWED):
        return _ANY
    if isinstance(op, ops.Gather):
        given = given[:1]
    parts = [_extent(builder, t, depth, known) for t in given]
    low, high = parts[0] if parts else _ANY
    if isinstance(op, _PICKS):
        return low, high
    if isinstance(op, ops.Convert | ops.Cast):
        whole = given[0].dtype.is_float and not x.dtype.is_float
        return (_floor_finite(low), _ceil_finite(high)) if whole else (low, high)
    if isinstance(op, ops.Floor | ops.Ceil | ops.RoundEven):
        return _floor_finite(low), _ceil_finite(high)
    if isinstance(op, ops.ReduceSum):
        count = given[0].elements // max(x.elements, 1)
        return min(low * count, low), max(high * count, high)
    if isinstance(op, ops.Clip):
        return max(low, op.low), min(high, op.high)
    if isinstance(op, ops.Clamp):
        least, most = op.activation.bounds
        return max(low, least), min(high, most)
    if isinstance(op, ops.Concat):
        return min(p[0] for p in parts), max(p[1] for p in parts)
    if isinstance(op, ops.Div) and not x.dtype.is_float:
        op = ops.FloorDiv() if parts[0][0] >= 0 else op  # rounds to 0
    return _of_two(op, parts[-2:])


def _joined(builder: GraphBuilder, x: Tensor) -> list[Tensor]:
    """The tensors that `x` is joined of; itself if it is not."""
    node = builder.producer(x.name)
    if node is None or not isinstance(node.op, ops.Concat):
        return [x]
    return [builder.tensor(name) for name in node.inputs if name is not None]


def _of_element(builder: GraphBuilder, x: Tensor, at: int, depth: int, known: _Known) -> Extent:
    """The value range of one element of a tensor: parts of a shape are not as large as its
    largest."""
    x, at = origin_of(builder, x, at)
    if x.data is not None:
        return _of_constant(replace(x, shape=(1,), data=x.data.reshape(-1)[at : at + 1]))
    return _extent(builder, x, depth, known)


def origin_of(builder: GraphBuilder, x: Tensor, at: int) -> tuple[Tensor, int]:
    """The tensor that an element comes from, by moves only; elements are counted in C order."""
    for _ in range(_DEPTH):
        node = builder.producer(x.name)
        found = None if node is None else _element_before(builder, node, x, at)
        if found is None:
            break
        x, at = found
    return x, at


def _element_before(
    builder: GraphBuilder, node: Node, x: Tensor, at: int
) -> tuple[Tensor, int] | None:
    op, given = node.op, [builder.tensor(name) for name in node.inputs if name is not None]
    if isinstance(op, ops.Reshape):
        return given[0], at
    if isinstance(op, ops.StridedSlice) and len(op.begin) == 1:
        return given[0], op.begin[0] + at * op.stride[0]
    if isinstance(op, ops.Gather) and len(given[0].shape) == 1 and given[1].data is not None:
        return given[0], int(given[1].data.flat[at]) % given[0].elements
    if isinstance(op, ops.Concat) and len(x.shape) == 1:
        for part in given:
            if at < part.elements:
                return part, at
            at -= part.elements
    if isinstance(op, ops.Where):
        chosen = _is_chosen(builder, given[0], x, at)
        source = given[1] if chosen else given[2]
        if chosen is not None and source.elements in (1, x.elements):
            return source, at % source.elements
    return None


def _is_chosen(builder: GraphBuilder, condition: Tensor, x: Tensor, at: int) -> bool | None:
    """A condition at an element of `x`; None if it depends on data. Sizes are compared with -1,
    which keeps that of the operand, before data are expanded."""
    if condition.data is not None:
        return bool(np.broadcast_to(condition.data, x.shape).flat[at])
    node = builder.producer(condition.name)
    if node is None or not isinstance(node.op, ops.Equal) or condition.shape != x.shape:
        return None
    sides = [builder.tensor(name) for name in node.inputs if name is not None]
    if any(side.elements not in (1, x.elements) for side in sides):
        return None
    (a, b), (c, d) = (_of_element(builder, side, at % side.elements, _DEPTH, {}) for side in sides)
    if b < c or d < a:
        return False
    return True if a == b == c == d else None


def _of_two(op: object, parts: Sequence[Extent]) -> Extent:
    if len(parts) != 2:
        return _ANY
    (a, b), (c, d) = parts
    if isinstance(op, ops.Minimum):
        return min(a, c), min(b, d)
    if isinstance(op, ops.Maximum):
        return max(a, c), max(b, d)
    if isinstance(op, ops.Where):
        return min(a, c), max(b, d)
    if isinstance(op, ops.Add):
        return a + c, b + d
    if isinstance(op, ops.Sub):
        return a - d, b - c
    if isinstance(op, ops.Modulo):
        most = max(abs(c), abs(d))
        return (-most if c < 0 or (op.truncated and a < 0) else 0), most
    if isinstance(op, ops.Mul) and all(map(math.isfinite, (a, b, c, d))):
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if isinstance(op, ops.Div | ops.FloorDiv) and c >= 1:
        # Rounded outwards, because quotients of floats are rounded.
        least = _floor_finite(a / c if a < 0 else a / d)
        most = b / c if b > 0 else b / d
        most = _floor_finite(most) if isinstance(op, ops.FloorDiv) else _ceil_finite(most)
        return max(min(_floor_finite(a), 0), least), min(max(b, 0), most)
    return _ANY


def _floor_finite(value: float) -> float:
    return math.floor(value) if math.isfinite(value) else value


def _ceil_finite(value: float) -> float:
    return math.ceil(value) if math.isfinite(value) else value


def distance(builder: GraphBuilder, a: Tensor, b: Tensor) -> int | None:
    """b − a of two computed one-element tensors, if it is known."""
    (root, first), (other, last) = _steps_from(builder, a), _steps_from(builder, b)
    if root == other or (a.shape == b.shape and _computes_same(builder, root, other, _DEPTH)):
        return last - first
    return None


def _computes_same(builder: GraphBuilder, a: str, b: str, depth: int) -> bool:
    """Whether the nodes that produce two tensors compute the same from the same operands."""
    if a == b or not depth:
        return a == b
    first, second = builder.producer(a), builder.producer(b)
    if first is None or second is None or first.op != second.op:
        return False
    if len(first.inputs) != len(second.inputs) or len(first.outputs) != 1:
        return False
    return all(
        x is not None and y is not None and _computes_same(builder, x, y, depth - 1)
        for x, y in zip(first.inputs, second.inputs, strict=True)
    )


def _steps_from(builder: GraphBuilder, x: Tensor) -> tuple[str, int]:
    """Writes `x` as root + n with an integer n; returns the name of the root, and n."""
    total = 0
    for _ in range(_DEPTH):
        source, at = origin_of(builder, x, 0)
        if source.data is not None and (n := _integer(source.data.flat[at].item())) is not None:
            return "", total + n
        if source.elements > 1:
            return f"{source.name}[{at}]", total
        x = source
        node = builder.producer(x.name)
        if node is None:
            break
        given = [builder.tensor(name) for name in node.inputs if name is not None]
        found = _base_and_offset(builder, node, x, given)
        if found is None:
            break
        x, total = found[0], total + found[1]
    return x.name, total


def _integer(value: float) -> int | None:
    return int(value) if math.isfinite(value) and value == int(value) else None


def _base_and_offset(
    builder: GraphBuilder, node: Node, x: Tensor, given: Sequence[Tensor]
) -> tuple[Tensor, int] | None:
    """(y, n) if `node` computes y + n with an integer n, else None."""
    op = node.op
    if isinstance(op, ops.Reshape) or (
        isinstance(op, ops.Convert) and is_exact(builder, given[0], x.dtype)
    ):
        return given[0], 0
    if len(given) != 2 or any(t.elements != 1 for t in given):
        return None
    value, known = given if given[1].data is not None else given[::-1]
    if known.data is None:
        return None
    number: float = known.data.item()
    low, high = extent(builder, value)
    least = isinstance(op, ops.Minimum) and high <= number
    if least or (isinstance(op, ops.Maximum) and low >= number):
        return value, 0
    swapped = isinstance(op, ops.Sub) and known is given[0]
    added = _integer(number)
    if not isinstance(op, ops.Add | ops.Sub) or swapped or added is None:
        return None
    if isinstance(op, ops.Sub):
        added = -added
    return (value, added) if is_exact(builder, x, x.dtype) else None


def is_exact(builder: GraphBuilder, x: Tensor, dtype: DType) -> bool:
    """Whether `x` has integers only, which are the same in its type and in `dtype`."""
    if not x.dtype.is_float and not dtype.is_float:
        return True
    low, high = extent(builder, x)
    return max(abs(low), abs(high)) < _EXACT and _has_integers(builder, x, _DEPTH)


def _has_integers(builder: GraphBuilder, x: Tensor, depth: int) -> bool:
    """Whether all values of `x` are integers, whatever their type."""
    if not x.dtype.is_float:
        return True
    if x.data is not None:
        return bool(np.all(np.isfinite(x.data)) and np.all(x.data == np.floor(x.data)))
    node = builder.producer(x.name)
    if node is None or depth == 0:
        return False
    if isinstance(node.op, ops.Floor | ops.Ceil | ops.RoundEven):
        return True
    names = [name for name in node.inputs if name is not None]
    if isinstance(node.op, ops.Gather):
        names = names[:1]
    kept = isinstance(node.op, (*_PICKS, ops.Convert, *_WHOLE))
    return kept and all(_has_integers(builder, builder.tensor(n), depth - 1) for n in names)
