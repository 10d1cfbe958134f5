"""Converts measured operators and orders to and from rows of the history's SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from edgekit.host.compiler.costs.methods.bands import BANDS
from edgekit.host.compiler.costs.methods.gemm import split_of
from edgekit.host.compiler.costs.methods.operators import Family, OperatorMethod
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.host.lab.history.orders import OrderMeasurement
from edgekit.kb.features import GemmShape

OPERATOR_COLUMNS = (
    "board", "platform", "model", "operator", "form", "threads", "m", "k", "n", "family",
    "precision", "mr", "nr", "split", "cost", "default_cost", "when", "kit_version", "source",
    "unit", "kc", "members", "band",
)  # fmt: skip
ORDER_COLUMNS = (
    "board", "platform", "model", "part", "graph", "run_order", "searched", "threads", "cost",
    "default_cost", "when", "kit_version", "source", "unit",
)  # fmt: skip
_FAMILIES: dict[str, Family] = {name: name for name in get_args(Family)}


class Values:
    """A row's values by column; raises ValueError if one has the wrong type."""

    def __init__(self, columns: Sequence[str], row: tuple[object, ...]) -> None:
        self._values = dict(zip(columns, row, strict=True))

    def integer(self, name: str) -> int:
        value = self._values[name]
        if not isinstance(value, int):
            raise ValueError(f"expected a whole number for {name}, found {value!r}")
        return value

    def integer_or_none(self, name: str) -> int | None:
        return None if self._values[name] is None else self.integer(name)

    def real(self, name: str) -> float:
        value = self._values[name]
        if not isinstance(value, int | float):
            raise ValueError(f"expected a number for {name}, found {value!r}")
        return float(value)

    def text(self, name: str) -> str:
        return str(self._values[name])


def operator_row(m: OperatorMeasurement) -> tuple[object, ...]:
    """The values of a row in column order."""
    s, w = m.shape, m.method
    return (
        m.board, m.platform, m.model, m.operator, m.form, m.threads, s.m, s.k, s.n, w.family,
        w.precision, w.mr or 0, w.nr or 0, w.split, m.cost, m.default_cost, m.when, m.kit_version,
        m.source, m.unit, w.kc or 0, w.members, w.band,
    )  # fmt: skip


def operator_measurement(row: tuple[object, ...]) -> OperatorMeasurement:
    """The measurement in a row. Raises ValueError for impossible values."""
    v = Values(OPERATOR_COLUMNS, row)
    family = _FAMILIES.get(v.text("family"))
    if family is None:
        raise ValueError(f"expected a family of kernels, found {v.text('family')}")
    split = split_of(v.text("split"))
    sizes = (v.integer("mr") or None, v.integer("nr") or None, split, v.integer("kc") or None)
    band = v.integer_or_none("band")
    if band not in (None, *BANDS):
        raise ValueError(f"expected a band of {BANDS} quarters of the last cache, found {band}")
    return OperatorMeasurement(
        board=v.text("board"),
        platform=v.text("platform"),
        model=v.text("model"),
        operator=v.text("operator"),
        form=v.text("form"),
        threads=v.integer("threads"),
        shape=GemmShape(v.integer("m"), v.integer("k"), v.integer("n")),
        method=OperatorMethod(family, v.text("precision"), *sizes, v.integer("members"), band),
        cost=v.real("cost"),
        default_cost=v.real("default_cost"),
        when=v.text("when"),
        kit_version=v.text("kit_version"),
        source=v.text("source"),
        unit=v.text("unit"),
    )


def order_row(m: OrderMeasurement) -> tuple[object, ...]:
    """The values of a row in column order."""
    orders = (",".join(map(str, each)) for each in (m.order, m.searched))
    return (
        m.board, m.platform, m.model, m.part, m.graph, *orders, m.threads, m.cost, m.default_cost,
        m.when, m.kit_version, m.source, m.unit,
    )  # fmt: skip


def order_measurement(row: tuple[object, ...]) -> OrderMeasurement:
    """The measurement in a row. Raises ValueError for impossible values."""
    v = Values(ORDER_COLUMNS, row)
    order, searched = (
        tuple(map(int, v.text(name).split(","))) for name in ("run_order", "searched")
    )
    return OrderMeasurement(
        board=v.text("board"),
        platform=v.text("platform"),
        model=v.text("model"),
        part=v.text("part"),
        graph=v.text("graph"),
        order=order,
        searched=searched,
        threads=v.integer("threads"),
        cost=v.real("cost"),
        default_cost=v.real("default_cost"),
        when=v.text("when"),
        kit_version=v.text("kit_version"),
        source=v.text("source"),
        unit=v.text("unit"),
    )
