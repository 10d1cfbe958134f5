"""Measured operator orders, and the best order per part of a graph derived from them."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.tables.orders import Order, OrderRow
from edgekit.host.lab.history.measurement import check_measured
from edgekit.host.lab.history.operator_history import OPERATOR_UNITS, WEIGHTS

WORTH = 0.98  # ratio to the searched order's cost above which an order is not remembered
_DIGITS = 4


@dataclass(frozen=True)
class OrderMeasurement:
    """The cost of a part of a model in an order, and `default_cost`, its cost in the same run in
    the order found by the search.

    `graph`: hash of the part's structure, `part`: its first operator, since a model may have
    identical parts; `searched`: the search's order. `unit`: seconds, or cycles of simulated
    time.
    """

    board: str
    platform: str
    model: str
    part: str
    graph: str
    order: Order
    searched: Order
    threads: int
    cost: float
    default_cost: float
    when: str
    kit_version: str
    source: str
    unit: str = "seconds"

    def __post_init__(self) -> None:
        check_measured(self, WEIGHTS, OPERATOR_UNITS)
        every = list(range(len(self.order)))
        if not every or sorted(self.order) != every or sorted(self.searched) != every:
            raise ValueError(f"expected two orders of the same positions, found {self.order}")

    @property
    def ratio(self) -> float:
        """Cost over the searched order's cost: below 1 is better."""
        return self.cost / self.default_cost


def order_rows(history: Iterable[OrderMeasurement]) -> tuple[OrderRow, ...]:
    """A row for each part measured to be at least 2% faster in an order other than the searched
    one. The last measurement of a part and order counts, the newest edgekit if there are several,
    and the last measurement's searched order if these differ."""
    found: dict[str, list[OrderMeasurement]] = defaultdict(list)
    for m in history:
        found[m.graph].append(m)
    rows = (_select_row(found[graph]) for graph in sorted(found))
    return tuple(row for row in rows if row is not None)


def _select_row(history: Sequence[OrderMeasurement]) -> OrderRow | None:
    newest = max(_version_key(m) for m in history)
    of_newest = [m for m in history if _version_key(m) == newest]
    searched = of_newest[-1].searched
    last = {
        (m.board, m.model, m.part, m.threads, m.source, m.unit, m.order): m
        for m in of_newest
        if m.searched == searched
    }
    by_order: dict[Order, list[OrderMeasurement]] = defaultdict(list)
    for m in last.values():
        by_order[m.order].append(m)
    ratios = {order: _weighted_mean_ratio(of_order) for order, of_order in by_order.items()}
    best = min(ratios, key=lambda order: (ratios[order], order))
    if best == searched or ratios[best] > WORTH:
        return None
    of_best = max(by_order[best], key=lambda m: (WEIGHTS[m.source], m.when))
    return OrderRow(
        of_best.graph,
        best,
        searched,
        float(f"{ratios[best]:.{_DIGITS}g}"),
        of_best.source,
        of_best.board,
        of_best.when,
        of_best.kit_version,
    )


def _weighted_mean_ratio(history: Sequence[OrderMeasurement]) -> float:
    """The weighted geometric mean of the ratios."""
    weights = [WEIGHTS[m.source] for m in history]
    logs = (w * math.log(m.ratio) for w, m in zip(weights, history, strict=True))
    return math.exp(sum(logs) / sum(weights))


def _version_key(m: OrderMeasurement) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", m.kit_version))
