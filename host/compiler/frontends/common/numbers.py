"""Numbers of an import that follow from how many rows of a buffer are valid.

Each is kept twice: as a constant computed from the bound, which sizes buffers, and as the true
value, which is computed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.extent import distance, extent
from edgekit.host.compiler.frontends.common.rows import Rows
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.errors import InputError

Run = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class Number:
    """A constant that depends on a bound: its true value, computed at run time, and `least`, its
    constant value if there are no valid rows."""

    value: Tensor
    least: Tensor
    rows: Rows


class Numbers:
    """The numbers of an import, by the name of the constant."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self._known: dict[str, Number] = {}

    def of(self, t: Any) -> Number | None:
        return self._known.get(t.name) if isinstance(t, Tensor) else None

    def among(self, ins: Sequence[Any]) -> list[Number]:
        return [n for t in ins if (n := self.of(t))] if self._known else []

    def track_size(
        self, x: Tensor, rows: Rows, axes: Sequence[int], made: Sequence[Tensor]
    ) -> None:
        """Shape or Size of `x`, which has the rows along `axes`, all of that size."""
        known = made[0].data
        assert known is not None
        if not axes or (known.ndim == 0 and len(axes) > 1):
            raise InputError(
                "expected a data-dependent number of rows along one axis, found shape "
                f"{list(x.shape)} of at most {rows.bound}; end the model before it"
            )
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
        self._known.update((t.name, Number(value, least, rows)) for t in made)

    def track_computed(
        self, picks: bool, ins: Sequence[Any], made: Sequence[Tensor], run: Run
    ) -> None:
        """A node with constant operands only: emits it again for zero rows and for true values.
        `picks`: it passes numbers through."""
        numbers = [self.of(t) for t in ins]
        least = run([n.least if n else t for n, t in zip(numbers, ins, strict=True)])
        true = run([n.value if n else t for n, t in zip(numbers, ins, strict=True)])
        rows = next(n.rows for n in numbers if n)
        for t, low, value in zip(made, least, true, strict=False):
            assert isinstance(low, Tensor) and isinstance(value, Tensor)
            if value.data is not None or (picks and _has_equal_data(t, low)):
                continue
            self._known[t.name] = Number(value, low, rows)

    def rows_by_size(self, op: str, size: Any, count: int) -> tuple[Rows, int]:
        """The rows of a result whose size is a tracked number, and how many of its sizes are that
        number: one, or two if they are equal. `count`: the numbers among the operands."""
        number = self.of(size)
        if count != 1 or number is None or not isinstance(size, Tensor):
            raise InputError(f"expected {op} by one data-dependent number, found several")
        assert size.data is not None and number.least.data is not None
        flat, least = size.data.reshape(-1), number.least.data.reshape(-1)
        places = np.flatnonzero(flat != least)
        line = self._builder.emit(ops.Reshape((len(flat),)), number.value)
        lengths = [
            self._builder.emit(ops.StridedSlice((int(p),), (1,), (1,), (1,)), line)
            for p in places[:3]
        ]
        alike = len(places) == 1 or (
            len(places) == 2
            and flat[places[0]] == flat[places[1]]
            and distance(self._builder, *lengths) == 0
        )
        if not alike:
            raise InputError(f"expected {op} with one data-dependent size, found {len(places)}")
        length, bound = lengths[0], int(flat[places[0]])
        if extent(self._builder, length)[1] > bound:
            raise InputError(
                f"expected {op} with a size that is largest for the most rows ({bound}), "
                f"found up to {extent(self._builder, length)[1]:g}"
            )
        if length.dtype is not DType.I64:
            length = self._builder.emit(ops.Convert(DType.I64), length)
        return Rows(number.rows.root, length, bound), len(places)


def _has_equal_data(a: Tensor, b: Tensor) -> bool:
    assert a.data is not None and b.data is not None
    return a.shape == b.shape and bool(np.array_equal(a.data, b.data))


def are_known(ins: Sequence[Any]) -> bool:
    """Whether all operands that are there are constants."""
    return all(isinstance(t, Tensor) and t.data is not None for t in ins if t is not None)
