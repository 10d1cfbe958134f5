"""Estimated costs of products whose loops the core has met before."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from edgekit.host.simulator.products import Part, PartsAsked
from edgekit.host.simulator.run import SimulatedCost

_SMALL = 1 << 20  # operations of a part up to which branches matter
_SHALLOW = 32  # k of a part up to which writing C does
_AT_ONCE = 50  # parts of a run, which would otherwise be split between both times


class PartTimer(Protocol):
    """The cost of parts of products on a simulated core; `ProductTimer` is one."""

    def part_costs(self, asked: Sequence[PartsAsked]) -> Sequence[Sequence[SimulatedCost]]: ...


def warm_costs(timer: PartTimer, asked: Sequence[PartsAsked]) -> list[list[SimulatedCost]]:
    """The cost of each part of each product. Small and shallow parts of a product run again after
    all of them and only then count.

    A branch predictor learns short loops from other methods' loops as well: on an A72, 384 x 3 x 16
    took 1.6 times as long for the first method of a run as later, however often it was repeated.
    Lines written as a stream come into the caches after several runs only: on an A76, 384 x 3 x 784
    took 4.2 times as long for the first method of a run.
    """
    pieces = [
        (product, parts[at : at + _AT_ONCE])
        for product, parts in asked
        for at in range(0, len(parts), _AT_ONCE)
    ]
    repeated = [
        (product, [*parts, *(part for part in parts if _depends_on_others(part))])
        for product, parts in pieces
    ]
    found = map(_last_costs, pieces, timer.part_costs(repeated))
    costs = itertools.chain.from_iterable(found)
    return [list(itertools.islice(costs, len(parts))) for _, parts in asked]


def _last_costs(piece: PartsAsked, costs: Sequence[SimulatedCost]) -> list[SimulatedCost]:
    _, parts = piece
    again = iter(costs[len(parts) :])
    return [
        next(again) if _depends_on_others(part) else cost
        for part, cost in zip(parts, costs, strict=False)
    ]


def _depends_on_others(part: Part) -> bool:
    shape, _ = part
    return shape.operations <= _SMALL or shape.k <= _SHALLOW
