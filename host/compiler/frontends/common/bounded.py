"""Upper-bound buffers for results whose length depends on the data.

A buffer holds the valid rows first and filler after them, and so does everything computed from it
row by row. An operator that combines rows would include the filler, so it is refused. The graph
returns the number of valid rows as an extra output.

A value derived from that number is kept twice: as a constant computed from the bound, which sizes
buffers, and as the true value, which is computed at run time (`_Number`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.extent import extent
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, ShapeError, Tensor
from edgekit.host.errors import InputError

Run = Callable[[Sequence[Any]], Sequence[Any]]


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
    unrelated: frozenset[str] = frozenset()
    joins: frozenset[str] = frozenset()
    # Subsets of `across_rows`: operators along one axis, reductions, and products of rows with a
    # matrix. They are safe if the bounded rows are on another axis.
    along: frozenset[str] = frozenset()
    reductions: frozenset[str] = frozenset()
    products: frozenset[str] = frozenset()
    gathers: frozenset[str] = frozenset()  # by operand 1 along one axis; negatives from the end
    # Reductions along the axes in operand 1, with what filler must be to leave their result alone.
    neutral: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Rows:
    """`length` [1] s64: the number of valid rows, at most `bound`; `root` names the tensor that
    introduced them."""

    root: str
    length: Tensor
    bound: int


@dataclass(frozen=True, eq=False)
class _Number:
    """A constant that depends on a bound: its true value, computed at run time, and `least`, its
    constant value if there are no valid rows."""

    value: Tensor
    least: Tensor
    rows: _Rows


class Bounded:
    """Tracks the tensors of an import that have filler rows, by name."""

    def __init__(self, builder: GraphBuilder, rules: Rules) -> None:
        self._builder = builder
        self._rules = rules
        self._rows: dict[str, _Rows] = {}
        self._numbers: dict[str, _Number] = {}

    def add(self, x: Tensor, length: Tensor, bound: int) -> None:
        """Declares that `length` ([1] s64) of the `bound` rows of `x` are valid."""
        self._rows[x.name] = _Rows(x.name, length, bound)

    def holds(self, x: Any) -> bool:
        """Whether `x` has filler rows or depends on the number of valid ones."""
        return isinstance(x, Tensor) and (x.name in self._rows or x.name in self._numbers)

    def operands(self, op: str, ins: Sequence[Any], axis: int = -1) -> list[Any]:
        """The operands to emit a node with: true values, unless all operands are constants.
        Indices that count from the end count from that of the valid rows."""
        rules = self._rules
        if (rows := self._gathered(op, ins, axis)) is not None:
            return [ins[0], self._from_end(ins[1], rows), *ins[2:]]
        if (rows := self._reduced(op, ins)) is not None:
            return [self._filled(ins[0], rows, rules.neutral[op]), *ins[1:]]
        by_constant = op in rules.sized_by or (op not in rules.computing and _is_known(ins))
        if by_constant or not self._tracked_operands(ins):
            return list(ins)
        return [n.value if (n := self._tracked_number(t)) else t for t in ins]

    def follow(
        self, op: str, ins: Sequence[Any], outs: Iterable[tuple[Any, ...]],
        run: Run, axis: int = -1,
    ) -> None:  # fmt: skip
        """Propagates rows through a node just emitted. `outs`: each output under its names; `run`
        emits the node again with other operands; `axis`: the first axis the operator works
        along."""
        pairs = [tuple(t for t in names if isinstance(t, Tensor)) for names in outs]
        made = [t for names in pairs for t in names]
        given = [t for t in ins if isinstance(t, Tensor)]
        fresh = {names[-1].name: self._rows[t.name] for names in pairs for t in names
                 if t.name in self._rows}  # fmt: skip
        self._rows.update(fresh)
        rows = {r.root: r for t in given if (r := self._rows.get(t.name))}
        rules = self._rules
        if op in rules.unrelated:
            return
        if self._reduced(op, ins) is not None:
            return
        if op in rules.counts and rows:
            self._track_size(given[0], made)
            return
        numbers = self._tracked_operands(ins)
        known, size = _is_known(ins), self._size(op, ins)
        sizes = size is not None and not (known and self._tracked_number(size) is None)
        if numbers and known and not sizes and op not in rules.computing:
            self._track_computed(op, ins, made, run)
            return
        if sizes and numbers:
            sized = self._rows_by_size(op, ins, numbers)
            rows[sized.root] = sized
        computed = any(t.data is None for t in given)
        across = op in rules.across_rows and not self._is_separate(op, given, made, axis)
        across = across or (op in rules.joins and self._resizes_rows(given, made))
        if len(rows) > 1 or (rows and computed and across):
            raise InputError(
                "expected only row-wise operators on a data-dependent number of boxes or indices, "
                f"found {op}; end the model before it and continue in the application"
            )
        picked = self._gathered(op, ins, axis)
        if picked is not None and not (isinstance(ins[1], Tensor) and ins[1].name in self._rows):
            return  # some rows, however many are valid
        for each in rows.values():
            kept = self._rows_of_slice(ins, made, each) if op in rules.cuts else each
            self._rows.update((t.name, kept) for t in made if t.name not in fresh)

    def _gathered(self, op: str, ins: Sequence[Any], axis: int) -> _Rows | None:
        """The rows from which a node gathers some."""
        x = ins[0] if ins and op in self._rules.gathers else None
        rows = self._rows.get(x.name) if isinstance(x, Tensor) else None
        if x is None or rows is None or not -len(x.shape) <= axis < len(x.shape):
            return None
        return rows if x.shape[axis] == rows.bound else None

    def _from_end(self, indices: Tensor, rows: _Rows) -> Tensor:
        if indices.data is not None and np.all(indices.data >= 0):
            return indices
        emit, kind = self._builder.emit, indices.dtype
        length = rows.length if kind is DType.I64 else emit(ops.Convert(kind), rows.length)
        length = emit(ops.Reshape(()), length)
        zero = self._builder.constant(np.zeros((), kind.numpy))
        below = emit(ops.Less(), indices, zero)
        return emit(ops.Where(), below, emit(ops.Add(), indices, length), indices)

    def _reduced(self, op: str, ins: Sequence[Any]) -> _Rows | None:
        """The rows over which a node reduces, if filler can be neutral."""
        x = ins[0] if ins and op in self._rules.neutral else None
        rows = self._rows.get(x.name) if isinstance(x, Tensor) else None
        if not isinstance(x, Tensor) or rows is None or x.shape.count(rows.bound) != 1:
            return None
        given = ins[1] if len(ins) > 1 else None
        if given is not None and given.data is None:
            return None
        axes = (
            range(len(x.shape)) if given is None or not given.data.size else given.data.reshape(-1)
        )
        at = x.shape.index(rows.bound)
        return rows if at in {int(a) % len(x.shape) for a in axes} else None

    def _filled(self, x: Tensor, rows: _Rows, value: float) -> Tensor:
        """`x` with `value`, or the nearest that its type has, in place of filler."""
        at, rank = x.shape.index(rows.bound), len(x.shape)
        self._builder.need_room((rows.bound,), np.int64)
        places = np.arange(rows.bound).reshape(-1, *(1,) * (rank - 1 - at))
        valid = self._builder.emit(ops.Less(), self._builder.constant(places), rows.length)
        if not x.dtype.is_float:
            ends = np.iinfo(x.dtype.numpy)
            value = min(max(value, ends.min), ends.max)
        filler = self._builder.constant(np.array(value, x.dtype.numpy))
        return self._builder.emit(ops.Where(), valid, x, filler)

    def _is_separate(
        self, op: str, given: Sequence[Tensor], made: Sequence[Tensor], axis: int
    ) -> bool:
        """Whether the operator works only along axes other than that of the bounded rows."""
        rows = self._rows.get(given[0].name) if given else None
        if rows is None or given[0].shape.count(rows.bound) != 1:
            return False
        if any(t.name in self._rows for t in given[1:]):
            return False
        at, rank = given[0].shape.index(rows.bound), len(given[0].shape)
        if op in self._rules.along:
            return -rank <= axis < rank and axis % rank > at
        if op in self._rules.products:
            return at < rank - 1
        return op in self._rules.reductions and made[0].shape.count(rows.bound) == 1

    def _resizes_rows(self, given: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
        """Whether results have another size than an operand along its axis of bounded rows."""
        for x in given:
            rows = self._rows.get(x.name)
            if rows is not None and x.shape.count(rows.bound) == 1:
                at = x.shape.index(rows.bound)
                if any(t.shape[at : at + 1] != (rows.bound,) for t in made):
                    return True
        return False

    def finish(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs with true values, plus the row counts [1] as extra outputs, each named after
        the first output that has it."""
        made, seen = dict[str, Tensor](), set[str]()
        for name, output in outputs.items():
            number, rows = self._tracked_number(output), self._rows.get(output.name)
            made[name] = output if number is None else number.value
            if rows is not None and rows.length.name not in seen:
                seen.add(rows.length.name)
                made[f"{name}_length"] = rows.length
        return made

    def _tracked_number(self, t: Any) -> _Number | None:
        return self._numbers.get(t.name) if isinstance(t, Tensor) else None

    def _tracked_operands(self, ins: Sequence[Any]) -> list[_Number]:
        return [n for t in ins if (n := self._tracked_number(t))] if self._numbers else []

    def _track_size(self, x: Tensor, made: Sequence[Tensor]) -> None:
        """Shape or Size of a tensor; exactly one of its dimensions must be `bound`."""
        rows = self._rows[x.name]
        if x.shape.count(rows.bound) != 1:
            raise InputError(
                "expected a data-dependent number of rows along one axis, found shape "
                f"{list(x.shape)} of at most {rows.bound}; end the model before it"
            )
        known = made[0].data
        assert known is not None
        scalar = known.ndim == 0
        here = np.array(True) if scalar else known == rows.bound
        if not np.any(here):
            return
        emit, constant = self._builder.emit, self._builder.constant
        length = emit(ops.Reshape(()), rows.length)
        if made[0].dtype is not length.dtype:
            length = emit(ops.Convert(made[0].dtype), length)
        if scalar:
            value = emit(ops.Mul(), length, constant(known // rows.bound))
        else:
            value = emit(ops.Where(), constant(here), length, constant(known))
        least = constant(np.where(here, 0, known).astype(known.dtype))
        self._numbers.update((t.name, _Number(value, least, rows)) for t in made)

    def _track_computed(
        self, op: str, ins: Sequence[Any], made: Sequence[Tensor], run: Run
    ) -> None:
        """A node with constant operands only: emits it again for zero rows and for true values."""
        numbers = [self._tracked_number(t) for t in ins]
        least = run([n.least if n else t for n, t in zip(numbers, ins, strict=True)])
        true = run([n.value if n else t for n, t in zip(numbers, ins, strict=True)])
        rows = next(n.rows for n in numbers if n)
        for t, low, value in zip(made, least, true, strict=False):
            assert isinstance(low, Tensor) and isinstance(value, Tensor)
            if value.data is not None or (op in self._rules.picks and _has_equal_data(t, low)):
                continue
            self._numbers[t.name] = _Number(value, low, rows)

    def _size(self, op: str, ins: Sequence[Any]) -> Any:
        """The operand that sizes the result; None if the size is an option."""
        at = self._rules.sized_by.get(op)
        return None if at is None or at >= len(ins) else ins[at]

    def _rows_by_size(self, op: str, ins: Sequence[Any], numbers: Sequence[_Number]) -> _Rows:
        """The rows of a result whose size is a tracked number."""
        size = self._size(op, ins)
        number = self._tracked_number(size)
        if len(numbers) != 1 or number is None or not isinstance(size, Tensor):
            raise InputError(f"expected {op} by one data-dependent number, found several")
        assert size.data is not None and number.least.data is not None
        flat, least = size.data.reshape(-1), number.least.data.reshape(-1)
        places = np.flatnonzero(flat != least)
        if len(places) != 1:
            raise InputError(f"expected {op} with one data-dependent size, found {len(places)}")
        place, count = int(places[0]), len(flat)
        line = self._builder.emit(ops.Reshape((count,)), number.value)
        length = self._builder.emit(ops.StridedSlice((place,), (1,), (1,), (1,)), line)
        bound = int(flat[place])
        if extent(self._builder, length)[1] > bound:
            raise InputError(
                f"expected {op} with a size that is largest for the most rows ({bound}), "
                f"found up to {extent(self._builder, length)[1]:g}"
            )
        wide = (
            length
            if length.dtype is DType.I64
            else self._builder.emit(ops.Convert(DType.I64), length)
        )
        return _Rows(number.rows.root, wide, bound)

    def _rows_of_slice(self, ins: Sequence[Any], made: Sequence[Tensor], rows: _Rows) -> _Rows:
        """The rows of a slice: fewer if it cuts the row axis."""
        x, y = ins[0], made[0]
        if not isinstance(x, Tensor) or x.shape.count(rows.bound) != 1:
            return rows
        size = y.shape[x.shape.index(rows.bound)]
        steps = ins[4].data if len(ins) > 4 and isinstance(ins[4], Tensor) else None
        back = steps is not None and bool(np.any(steps < 0))
        if size == rows.bound and not back:
            return rows
        starts = ins[1].data if len(ins) > 1 and isinstance(ins[1], Tensor) else None
        if back or starts is None or np.any(starts != 0):
            raise ShapeError(
                "expected a forward slice from the first of a data-dependent number of rows, "
                f"found {'a backward one' if back else 'one that starts later'}"
            )
        most = self._builder.constant(np.array([size], np.int64))
        return _Rows(rows.root, self._builder.emit(ops.Minimum(), rows.length, most), size)


def _is_known(ins: Sequence[Any]) -> bool:
    return all(isinstance(t, Tensor) and t.data is not None for t in ins if t is not None)


def _has_equal_data(a: Tensor, b: Tensor) -> bool:
    assert a.data is not None and b.data is not None
    return a.shape == b.shape and bool(np.array_equal(a.data, b.data))
