"""Rows of which only the first are valid, and what operators along their axis make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.extent import origin_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor


@dataclass(frozen=True)
class Window:
    """How the output length of a convolution follows from its input length n along an axis:
    (n · `up` + `more`) // `down`."""

    up: int
    more: int
    down: int


@dataclass(frozen=True)
class Product:
    """A product of operands with a letter for each axis, as in an equation of Einsum: it sums over
    those that the result lacks. Axes of size 1 that are repeated have a dot."""

    terms: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class Cut:
    """A slice along an axis. A negative `end` counts from the end; None is the end."""

    start: int
    end: int | None
    step: int


@dataclass(frozen=True)
class Rules:
    """How a format's operators treat rows and row counts, by operator name.

    `sized_by`: index of the operand that sizes the result and must be constant. `picks` pass
    numbers through unchanged; `computing` operators use them as values, never as a size; `cuts`
    slice from operand 1 on; `joins` lengthen or cut an axis, after filler if it is that of the
    rows. Results of `unrelated` operators do not depend on rows, or their
    subgraphs were already followed.
    """

    across_rows: frozenset[str]
    counts: frozenset[str]
    sized_by: Mapping[str, int]
    picks: frozenset[str]
    computing: frozenset[str]
    cuts: frozenset[str]
    # The slice along an axis of operand 0 by a node of `cuts`, given its operands, the axis,
    # operand 0 and the result; None if it does not say which rows are valid.
    cut_of: Callable[[Sequence[Any], int, Tensor, Tensor], Cut | None]
    unrelated: frozenset[str] = frozenset()
    joins: frozenset[str] = frozenset()
    handled: frozenset[str] = frozenset()  # their handlers say which rows of results are valid
    sorts: frozenset[str] = frozenset()  # put filler last where they sort rows
    # Subsets of `across_rows`: operators along one axis, and reductions. They are safe if the
    # bounded rows are on another axis.
    along: frozenset[str] = frozenset()
    reductions: frozenset[str] = frozenset()
    gathers: frozenset[str] = frozenset()  # by operand 1 along one axis; negatives from the end
    # Reductions along the axes in operand 1, or all but two axes, with what filler must be to
    # leave their result alone.
    neutral: Mapping[str, float] = field(default_factory=dict)
    means: frozenset[str] = frozenset()  # those of `neutral` that divide by the number of rows
    spatial: frozenset[str] = frozenset()  # those of `neutral` along all axes but two
    # Operators along an axis, with the filler that leaves the results of valid rows alone.
    ranked: Mapping[str, float] = field(default_factory=dict)
    tuples: frozenset[str] = frozenset()  # gather from or scatter to operand 0 by tuples of indices
    elementwise: frozenset[str] = frozenset()  # move elements of all operands along one axis
    scatters: frozenset[str] = frozenset()  # those that scatter the rows of operand 2
    # Operators on windows of an image, operand 0, with what is behind its edge; None is the last
    # pixel.
    windows: Mapping[str, float | None] = field(default_factory=dict)
    pads: frozenset[str] = frozenset()  # add operand 1 around operand 0, of zeros
    reshapes: frozenset[str] = frozenset()  # give operand 0 another shape
    pointwise: frozenset[str] = frozenset()  # by element, with broadcasting, or moves of axes

    def reduces(self, op: str, ins: Sequence[Any], rows: Rows) -> bool:
        """Whether a node reduces operand 0 over `rows`, and filler can be neutral."""
        x, at = ins[0], rows.axis(ins[0])
        if op in self.spatial:
            return at is not None and at >= 2 and x.dtype is DType.F32
        given: Any = ins[1] if len(ins) > 1 else None
        if op not in self.neutral or at is None or (given is not None and given.data is None):
            return False
        named = given is not None and given.data.size > 0  # else it may reduce nothing
        if op in self.means and not (named and x.dtype is DType.F32):
            return False
        axes = given.data.reshape(-1) if named else range(len(x.shape))
        return at in {int(a) % len(x.shape) for a in axes}

    def size_of(self, op: str, ins: Sequence[Any]) -> Any:
        """The operand that sizes the result; None if the size is an option."""
        at = self.sized_by.get(op)
        return None if at is None or at >= len(ins) else ins[at]

    def ranks(self, op: str, x: Tensor, axis: int, axes: Sequence[int]) -> bool:
        """Whether a node works along rows of x, which are along `axes`, and filler can leave valid
        results alone."""
        rank = len(x.shape)
        inside = op in self.ranked and x.dtype.is_float and -rank <= axis < rank
        # With two axes only the last: in old opsets some work along all axes from the first.
        return inside and (len(axes) == 1 or axis % rank == rank - 1) and axis % rank in axes


@dataclass(frozen=True, eq=False)
class Rows:
    """`length` [1] s64: the number of valid rows, at most `bound`; `root` names the number that
    introduced them. `needed` [1] s64: the rows that there would be in a larger buffer, if there may
    be more."""

    root: str
    length: Tensor
    bound: int
    needed: Tensor | None = None

    def axis(self, x: Tensor) -> int | None:
        """The axis of `x` along which the rows are; None if its shape does not say it."""
        return x.shape.index(self.bound) if x.shape.count(self.bound) == 1 else None

    def after(self, bound: int, made: Callable[[Tensor], Tensor]) -> Rows:
        """As many rows as `made` computes from the number of these."""
        needed = None if self.needed is None else made(self.needed)
        return Rows(self.root, made(self.length), bound, needed)


def valid_rows(builder: GraphBuilder, rows: Rows) -> Tensor:
    """[bound] bool: which rows are valid."""

    def made() -> list[Tensor]:
        builder.need_room((rows.bound,), np.int64)
        return [builder.emit(ops.Less(), builder.constant(np.arange(rows.bound)), rows.length)]

    if builder.repeats > 1:
        return made()[0]
    number, at = origin_of(builder, rows.length, 0)
    return builder.once(("valid", number.name, at, rows.bound), made)[0]


def filled(builder: GraphBuilder, x: Tensor, rows: Rows, value: float | None, at: int) -> Tensor:
    """`x` with `value`, or the nearest that its type has, in place of filler along axis `at`; None
    is the last valid row."""
    if value is None:
        last = _at_least_0(builder, _affine(builder, rows.length, 1, -1))
        builder.need_room((rows.bound,), np.int64)
        places = builder.emit(ops.Minimum(), builder.constant(np.arange(rows.bound)), last)
        return builder.emit(ops.Gather(at), x, places)
    behind = len(x.shape) - 1 - at
    valid = valid_rows(builder, rows)
    if behind:
        valid = builder.emit(ops.Reshape((rows.bound, *(1,) * behind)), valid)
    if not x.dtype.is_float:
        ends = np.iinfo(x.dtype.numpy)
        value = min(max(value, ends.min), ends.max)
    filler = builder.constant(np.array(value, x.dtype.numpy))
    return builder.emit(ops.Where(), valid, x, filler)


def without_filler(
    builder: GraphBuilder, ins: Sequence[Any], product: Product, rows: Rows, letters: set[str]
) -> list[Any]:
    """The operands of a product, with zeros in place of the filler that it sums over; it is along
    the axes of `letters`."""
    made = list(ins)
    for place, term in enumerate(product.terms):
        for letter in sorted(letters.intersection(term).difference(product.result)):
            made[place] = filled(builder, made[place], rows, 0, term.index(letter))
    return made


def shared(builder: GraphBuilder, x: Tensor, rows: Rows) -> Tensor:
    """`x` so scaled that its mean over all rows is that of x over the valid ones."""
    length = builder.emit(ops.Convert(x.dtype), rows.length)
    factor = builder.emit(ops.Div(), builder.floats(rows.bound), length)
    return builder.emit(ops.Mul(), x, factor)


def indices_from_end(
    builder: GraphBuilder, indices: Tensor, rows: Rows, sizes: Sequence[int] | None, at: int = 0
) -> Tensor:
    """Indices of which none counts from the end of a buffer with filler. `sizes` [n]: those of the
    axes that tuples of indices are for, of which `at` is that of the rows; None if there are no
    tuples."""
    if indices.data is not None and np.all(indices.data >= 0):
        return indices
    emit, kind = builder.emit, indices.dtype
    length = rows.length if kind is DType.I64 else emit(ops.Convert(kind), rows.length)
    if sizes is None:
        length = emit(ops.Reshape(()), length)
    else:
        here = builder.constant(np.arange(len(sizes)) == at)
        others = builder.constant(np.array(sizes, kind.numpy))
        length = emit(ops.Where(), here, length, others)
    zero = builder.constant(np.zeros((), kind.numpy))
    below = emit(ops.Less(), indices, zero)
    return emit(ops.Where(), below, emit(ops.Add(), indices, length), indices)


def after_window(builder: GraphBuilder, rows: Rows, window: Window, bound: int) -> Rows:
    """The rows of a convolution whose result has `bound` rows."""

    def made(length: Tensor) -> Tensor:
        length = _affine(builder, length, window.up, window.more)
        if window.down != 1:
            length = builder.emit(ops.FloorDiv(), length, _number(builder, window.down))
        return _at_least_0(builder, length) if window.more < 0 else length

    return rows if window == Window(1, 0, 1) else rows.after(bound, made)


def after_reshape(builder: GraphBuilder, rows: Rows, x: Tensor, y: Tensor) -> Rows | None:
    """The rows of x in another shape; None if the valid ones are not the first of one axis."""
    if rows.bound == 1:
        return rows
    at = x.shape.index(rows.bound)
    before = math.prod(x.shape[:at])
    for i, size in enumerate(y.shape):
        if size == 1 or math.prod(y.shape[:i]) != before:
            continue
        if size and size % rows.bound == 0 and math.prod(x.shape[at:]) % size == 0:
            return after_window(builder, rows, Window(size // rows.bound, 0, 1), size)
        return None
    return None


def after_cut(builder: GraphBuilder, rows: Rows, cut: Cut, bound: int) -> Rows:
    """The rows of a slice with `bound` rows."""

    def made(length: Tensor) -> Tensor:
        if end >= 0:
            length = builder.emit(ops.Minimum(), length, _number(builder, end))
        length = _affine(builder, length, 1, min(end, 0) - cut.start + cut.step - 1)
        if cut.step > 1:
            length = builder.emit(ops.FloorDiv(), length, _number(builder, cut.step))
        return _at_least_0(builder, length) if cut.start or end < 0 else length

    end = rows.bound if cut.end is None else cut.end
    whole = (cut.start, cut.step) == (0, 1) and end >= rows.bound
    return rows if whole else rows.after(bound, made)


def _affine(builder: GraphBuilder, x: Tensor, factor: int, more: int) -> Tensor:
    if factor != 1:
        x = builder.emit(ops.Mul(), x, _number(builder, factor))
    return builder.emit(ops.Add(), x, _number(builder, more)) if more else x


def _at_least_0(builder: GraphBuilder, x: Tensor) -> Tensor:
    return builder.emit(ops.Maximum(), x, _number(builder, 0))


def _number(builder: GraphBuilder, value: int) -> Tensor:
    return builder.constant(np.array([value]))
