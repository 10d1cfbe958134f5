"""Upper-bound buffers for results whose length depends on the data.

A buffer holds the valid rows first and filler after them, and so does everything computed from it
row by row. An operator that combines rows would include the filler, so it is refused. The graph
returns the number of valid rows as an extra output.
A tensor may have them along two axes, as attention of rows to rows does: a square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.extent import distance
from edgekit.host.compiler.frontends.common.numbers import Numbers, Run, are_known
from edgekit.host.compiler.frontends.common.rows import (
    Product,
    Rows,
    Rules,
    Window,
    after_cut,
    after_reshape,
    after_window,
    filled,
    indices_from_end,
    shared,
    valid_rows,
    without_filler,
)
from edgekit.host.compiler.ir.types import ShapeError, Tensor
from edgekit.host.errors import InputError

Windows = Callable[[int], Window | None]  # by axis


class Bounded:
    """Tracks the tensors of an import that have filler rows, by name."""

    def __init__(
        self, builder: GraphBuilder, rules: Rules, most_rows: int | None = None, spare: int = 0
    ) -> None:
        """`most_rows`: the bound of results that have none by themselves; `spare`: rows that
        buffers have above their bound."""
        self._builder = builder
        self.most_rows, self.spare = most_rows, spare
        # Whether an operand had another axis of as many elements, so that nothing says which is
        # that of the rows. Another number of spare rows may help.
        self.ambiguous = False
        self._rules = rules
        self._rows: dict[str, Rows] = {}
        self._numbers = Numbers(builder)
        self._squares = set[str]()  # tensors with filler along two axes
        self._capped: list[Rows] = []  # more of these may be needed than their bound

    def add(self, x: Tensor, length: Tensor, bound: int, needed: Tensor | None = None) -> None:
        """Declares that `length` ([1] s64) of the `bound` rows of `x` are valid. `needed` [1] s64:
        the rows that there would be in a larger buffer, if there may be more."""
        self._rows[x.name] = rows = Rows(length.name, length, bound, needed)
        if needed is not None:
            self._capped.append(rows)

    def add_alike(self, x: Tensor, count: Tensor) -> bool:
        """Declares that `x` has as many valid rows as other tensors if `count`, one integer, is
        their number and `x` has their bound; returns whether it is so."""
        for rows in {r.length.name: r for r in self._rows.values()}.values():
            if rows.bound in x.shape and distance(self._builder, rows.length, count) == 0:
                self._rows[x.name] = rows
                return True
        return False

    def add_like(self, y: Tensor, x: Tensor) -> None:
        """Declares that `y` has the same valid rows as `x`, which has the same shape."""
        self._rows[y.name] = self._rows[x.name]

    def valid(self, x: Tensor) -> Tensor | None:
        """[bound] bool: which of the rows of `x` are valid; None if all are."""
        rows = self._rows.get(x.name)
        return None if rows is None else valid_rows(self._builder, rows)

    def holds(self, x: Any) -> bool:
        """Whether `x` has filler rows or depends on the number of valid ones."""
        return isinstance(x, Tensor) and (x.name in self._rows or self._numbers.of(x) is not None)

    def operands(
        self, op: str, ins: Sequence[Any], axis: int = -1, product: Product | None = None
    ) -> list[Any]:
        """The operands to emit a node with: true values, unless all operands are constants.
        Indices that count from the end count from that of the valid rows."""
        rules = self._rules
        self.ambiguous |= any(
            x.shape.count(self._rows[x.name].bound) > 1 + (x.name in self._squares)
            for x in ins
            if isinstance(x, Tensor) and x.name in self._rows
        )
        if product is not None and (common := self._multiplied(ins, product)) is not None:
            return without_filler(self._builder, ins, product, *common)
        if (rows := self._gathered(op, ins, axis)) is not None:
            return [ins[0], indices_from_end(self._builder, ins[1], rows, None), *ins[2:]]
        if (rows := self._reduced(op, ins)) is not None:
            full = filled(self._builder, ins[0], rows, rules.neutral[op], self.axes(ins[0])[0])
            return [shared(self._builder, full, rows) if op in rules.means else full, *ins[1:]]
        if (rows := self._ranked(op, ins, axis)) is not None:
            at = axis % len(ins[0].shape)
            return [filled(self._builder, ins[0], rows, rules.ranked[op], at), *ins[1:]]
        if (rows := self._convolved(op, ins)) is not None:
            at = self.axes(ins[0])[0]
            return [filled(self._builder, ins[0], rows, rules.windows[op], at), *ins[1:]]
        if (rows := self._padded(op, ins, axis)) is not None:
            return [filled(self._builder, ins[0], rows, 0, self.axes(ins[0])[0]), *ins[1:]]
        x = ins[0] if len(ins) > 1 and op in rules.tuples else None
        if isinstance(x, Tensor) and x.name in self._rows:
            return [x, self._tuples_from_end(x, ins[1]), *ins[2:]]
        by_constant = op in rules.sized_by or (op not in rules.computing and are_known(ins))
        if by_constant or not self._numbers.among(ins):
            return list(ins)
        return [n.value if (n := self._numbers.of(t)) else t for t in ins]

    def follow(
        self, op: str, ins: Sequence[Any], outs: Iterable[tuple[Any, ...]],
        run: Run, axis: int = -1, window: Windows = lambda _: None,
        product: Product | None = None,
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
        handled = op in rules.handled and all(n and n[-1].name in fresh for n in pairs)
        if op in rules.unrelated or handled:
            return
        if self._reduced(op, ins) is not None or self._padded(op, ins, axis) is not None:
            return
        if self._track_apart(op, ins, made, window, product, axis):
            return
        if op in rules.counts and rows:
            x = given[0]
            self._numbers.track_size(x, self._rows[x.name], self.axes(x), made)
            return
        numbers = self._numbers.among(ins)
        known, size = are_known(ins), rules.size_of(op, ins)
        sizes = size is not None and not (known and self._numbers.of(size) is None)
        if numbers and known and not sizes and op not in rules.computing:
            self._numbers.track_computed(op in rules.picks, ins, made, run)
            return
        places = 0
        if sizes and numbers:
            sized, places = self._numbers.rows_by_size(op, size, len(numbers))
            rows[sized.root] = sized
        picked = self._gathered(op, ins, axis)
        if picked is not None and (by := self._rows.get(ins[1].name)) and by.root != picked.root:
            del rows[picked.root]  # as many as there are indices
        computed = any(t.data is None for t in given)
        across = op in rules.across_rows and not self._is_separate(op, given, made, axis)
        across = across or (op in rules.joins and self._resizes_rows(given, made))
        square = any(t.name in self._squares for t in given)
        across = across or (square and op not in rules.pointwise and op not in rules.ranked)
        if len(rows) > 1 or (rows and computed and across):
            raise InputError(
                "expected only row-wise operators on a data-dependent number of boxes or indices, "
                f"found {op}; end the model before it and continue in the application"
            )
        if picked is not None and not (isinstance(ins[1], Tensor) and ins[1].name in self._rows):
            return  # some rows, however many are valid
        if (
            op in rules.reshapes
            and not (sizes and numbers)
            and self._track_reshape(op, given[0], made)
        ):
            return
        for each in rows.values():
            kept = self._rows_of_slice(ins, made, each) if op in rules.cuts else each
            self._rows.update((t.name, kept) for t in made if t.name not in fresh)
        self._mark_squares(op, given, made, places == 2)

    def _track_apart(
        self, op: str, ins: Sequence[Any], made: Sequence[Tensor],
        window: Windows, product: Product | None, axis: int,
    ) -> bool:  # fmt: skip
        """Tracks results whose rows are not simply those of an operand; False for others."""
        given = [t for t in ins if isinstance(t, Tensor)]
        if (found := self._convolved(op, ins)) is not None:
            at = self.axes(ins[0])[0]
            if (shape := window(at)) is None:
                raise InputError(
                    f"expected {op} with padding that is the same for any number of rows, found "
                    "automatic padding, or windows of another number"
                )
            windows = after_window(self._builder, found, shape, made[0].shape[at])
            self._rows.update((t.name, windows) for t in made)
            return True
        if product is not None and (common := self._multiplied(ins, product)) is not None:
            self._track_product(op, product, made, *common)
            return True
        if op in self._rules.reshapes and given[0].name in self._squares:
            self._reshape_square(op, given[0], made)
            return True
        if op in self._rules.scatters and self._is_scattered(given, axis):
            if (target := self._rows.get(given[0].name)) is not None:
                self._rows.update((t.name, target) for t in made)
            return True
        return op in self._rules.sorts and axis % len(given[0].shape) in self.axes(given[0])

    def axes(self, x: Tensor) -> tuple[int, ...]:
        """The axes of `x` along which filler is; none if its shape does not say it."""
        rows = self._rows.get(x.name)
        at = tuple(i for i, n in enumerate(x.shape) if rows is not None and n == rows.bound)
        return at if len(at) == (2 if x.name in self._squares else 1) else ()

    def _mark_squares(
        self, op: str, given: Sequence[Tensor], made: Sequence[Tensor], sized: bool
    ) -> None:
        """Marks results that have the rows along two axes: one of each of two operands, those of an
        operand, or because both sizes are the number of rows (`sized`)."""
        ends = {i - len(x.shape) for x in given for i in self.axes(x)}
        if not sized and (
            len(ends) != 2 or op not in self._rules.pointwise | {*self._rules.ranked}
        ):
            return
        for t in made:
            if (rows := self._rows.get(t.name)) and t.shape.count(rows.bound) == 2:
                self._squares.add(t.name)

    def _multiplied(self, ins: Sequence[Any], product: Product) -> tuple[Rows, set[str]] | None:
        """The rows of the operands of a product, and the letters of their axes; None if there are
        several kinds of rows, or an operand has all elements along an axis where another has
        filler."""
        terms = list(zip((t for t in ins if isinstance(t, Tensor)), product.terms, strict=False))
        kinds = {(r.root, r.bound): r for x, _ in terms if (r := self._rows.get(x.name))}
        own = [{term[i] for i in self.axes(x)} for x, term in terms]
        every = set[str]().union(*own)
        for (x, term), letters in zip(terms, own, strict=True):
            if {*term} & every != letters or (x.name in self._rows and not letters):
                return None
        return (next(iter(kinds.values())), every) if len(kinds) == 1 else None

    def _track_product(
        self, op: str, product: Product, made: Sequence[Tensor], rows: Rows, letters: set[str]
    ) -> None:
        kept = letters.intersection(product.result)
        if len(kept) > 2:
            raise InputError(
                "expected a data-dependent number of rows along at most two axes, found "
                f"{len(kept)} in the result of {op}; end the model before it"
            )
        self._rows.update((t.name, rows) for t in made if kept)
        self._squares.update(t.name for t in made if len(kept) == 2)

    def _reshape_square(self, op: str, x: Tensor, made: Sequence[Tensor]) -> None:
        """Tracks rows along two axes in another shape, which may change what is before them."""
        rows = self._rows[x.name]
        tail = [n for n in x.shape[x.shape.index(rows.bound) :] if n != 1]
        found = [n for n in made[0].shape if n != 1]
        if found[-len(tail) :] != tail or made[0].shape.count(rows.bound) != 2:
            raise InputError(
                "expected a data-dependent number of rows and columns to stay, found "
                f"{op} of {list(x.shape)} to {list(made[0].shape)}; end the model before it"
            )
        self._rows.update((t.name, rows) for t in made)
        self._squares.update(t.name for t in made)

    def _gathered(self, op: str, ins: Sequence[Any], axis: int) -> Rows | None:
        """The rows from which a node gathers some."""
        x = ins[0] if ins and op in self._rules.gathers else None
        rows = self._rows.get(x.name) if isinstance(x, Tensor) else None
        if x is None or rows is None or not -len(x.shape) <= axis < len(x.shape):
            return None
        return rows if x.shape[axis] == rows.bound else None

    def _padded(self, op: str, ins: Sequence[Any], axis: int) -> Rows | None:
        """The rows that a node pads with zeros behind them to a number that no data changes."""
        if op not in self._rules.pads or axis or not 1 < len(ins) < 4 or not are_known(ins[1:]):
            return None
        number, x = self._numbers.of(ins[1]), ins[0]
        rows = self._rows.get(x.name) if isinstance(x, Tensor) else None
        zero = not any(t is not None and np.any(t.data) for t in ins[2:])
        if number is None or rows is None or not zero or (at := rows.axis(x)) is None:
            return None
        most, least = ins[1].data, number.least.data
        assert most is not None and least is not None
        behind = len(x.shape) + at
        alike = np.array_equal(np.delete(most, behind), np.delete(least, behind))
        same = number.rows.root == rows.root and most[behind] + rows.bound == least[behind]
        return rows if alike and same else None

    def _is_scattered(self, given: Sequence[Tensor], axis: int) -> bool:
        """Whether all rows of updates are those of their indices, along the first axis."""
        indices, updates = given[1:3]
        places, new = self._rows.get(indices.name), self._rows.get(updates.name)
        if places is None:
            return new is None
        alike = new is None or (new.root == places.root and new.bound == places.bound)
        alike = alike and indices.shape[0] == updates.shape[0] == places.bound
        return alike and not axis and indices.shape.count(places.bound) == 1

    def _tuples_from_end(self, x: Tensor, indices: Tensor) -> Tensor:
        rows, depth = self._rows[x.name], indices.shape[-1] if indices.shape else 0
        at = rows.axis(x)
        if at is None or at >= depth:
            return indices
        return indices_from_end(self._builder, indices, rows, x.shape[:depth], at)

    def _reduced(self, op: str, ins: Sequence[Any]) -> Rows | None:
        """The rows over which a node reduces, if filler can be neutral."""
        rows = self._rows_of(ins)
        return rows if rows is not None and self._rules.reduces(op, ins, rows) else None

    def _ranked(self, op: str, ins: Sequence[Any], axis: int) -> Rows | None:
        """The rows along which a node works, if filler can leave valid results alone."""
        rows = self._rows_of(ins)
        return rows if rows and self._rules.ranks(op, ins[0], axis, self.axes(ins[0])) else None

    def _rows_of(self, ins: Sequence[Any]) -> Rows | None:
        return self._rows.get(ins[0].name) if ins and isinstance(ins[0], Tensor) else None

    def _track_reshape(self, op: str, x: Tensor, made: Sequence[Tensor]) -> bool:
        """Tracks rows of `x` in another shape; False if their axis is not known."""
        rows = self._rows.get(x.name)
        if rows is None or rows.axis(x) is None:
            return False
        found = after_reshape(self._builder, rows, x, made[0])
        if found is None:
            raise InputError(
                "expected a data-dependent number of rows along one axis, found "
                f"{op} of {list(x.shape)} to {list(made[0].shape)}; end the model before it"
            )
        self._rows.update((t.name, found) for t in made)
        return True

    def _convolved(self, op: str, ins: Sequence[Any]) -> Rows | None:
        """The rows that are an axis of the image that a node convolves, where filler can be 0."""
        rows = self._rows_of(ins) if op in self._rules.windows else None
        at = None if rows is None else rows.axis(ins[0])
        others = any(isinstance(t, Tensor) and t.name in self._rows for t in ins[1:])
        return None if at is None or at < 2 or others else rows

    def _is_separate(
        self, op: str, given: Sequence[Tensor], made: Sequence[Tensor], axis: int
    ) -> bool:
        """Whether the operator works only along axes other than that of the bounded rows."""
        rows = self._rows.get(given[0].name) if given else None
        if rows is not None and op in self._rules.elementwise:
            same = {(self._rows.get(t.name, rows).root, *self.axes(t)) for t in given}
            (at, *_) = self.axes(given[0]) or (axis,)
            return len(same) == 1 and axis % len(given[0].shape) != at
        if rows is None or any(t.name in self._rows for t in given[1:]):
            return False
        if self._ranked(op, given, axis) is not None:
            return True
        if given[0].shape.count(rows.bound) != 1:
            return False
        at, rank = given[0].shape.index(rows.bound), len(given[0].shape)
        if op in self._rules.along:
            return -rank <= axis < rank and axis % rank > at
        return op in self._rules.reductions and made[0].shape.count(rows.bound) == 1

    def _resizes_rows(self, given: Sequence[Tensor], made: Sequence[Tensor]) -> bool:
        """Whether results have another size than an operand along its axis of bounded rows."""
        sizes = [(at, x.shape[at]) for x in given for at in self.axes(x)]
        return any(t.shape[at : at + 1] != (size,) for at, size in sizes for t in made)

    def finish(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs with true values, plus the row counts [1] as extra outputs, each named after
        the first output that has it. A number that may be larger than the bound is one of them even
        if no output has as many rows."""
        made, seen, reported = dict[str, Tensor](), set[str](), set[str]()
        for name, output in outputs.items():
            number, rows = self._numbers.of(output), self._rows.get(output.name)
            made[name] = output if number is None else number.value
            if rows is not None and rows.length.name not in seen:
                seen.add(rows.length.name)
                reported.add(rows.root)
                made[f"{name}_length"] = rows.length if rows.needed is None else rows.needed
        for i, rows in enumerate(self._capped):
            if rows.root not in reported and rows.needed is not None:
                reported.add(rows.root)
                made[f"rows_{i}_length"] = rows.needed
        return made

    def _rows_of_slice(self, ins: Sequence[Any], made: Sequence[Tensor], rows: Rows) -> Rows:
        """The rows of a slice: fewer if it cuts the row axis."""
        x, y = ins[0], made[0]
        at = rows.axis(x) if isinstance(x, Tensor) else None
        if at is None:
            return rows
        cut = self._rules.cut_of(ins, at, x, y)
        if cut is None:
            raise ShapeError(
                "expected a forward slice from the first of a data-dependent number of rows, or a "
                "number of rows behind it, found another"
            )
        return after_cut(self._builder, rows, cut, y.shape[at])
