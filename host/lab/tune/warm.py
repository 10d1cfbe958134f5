"""Estimated costs of products whose loops the core has met before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgekit.host.simulator.products import Multiplication, Part
from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.features import GemmShape

_SMALL = 1 << 20  # operations of a part up to which branches matter
_SHALLOW = 32  # k of a part up to which writing C does
_AT_ONCE = 50  # parts of a run, which would otherwise be split between both times


class PartTimer(Protocol):
    """The cost of parts of a product on a simulated core; `ProductTimer` is one."""

    def part_costs(
        self, product: Multiplication, parts: Sequence[Part]
    ) -> tuple[SimulatedCost, ...]: ...


def warm_costs(
    timer: PartTimer, product: Multiplication, parts: Sequence[Part]
) -> list[SimulatedCost]:
    """The cost of each part. Small and shallow parts run again after all of them and only then
    count.

    A branch predictor learns short loops from other methods' loops as well: on an A72, 384 x 3 x 16
    took 1.6 times as long for the first method of a run as later, however often it was repeated.
    Lines written as a stream come into the caches after several runs only: on an A76, 384 x 3 x 784
    took 4.2 times as long for the first method of a run.
    """
    found: list[SimulatedCost] = []
    for at in range(0, len(parts), _AT_ONCE):
        some = parts[at : at + _AT_ONCE]
        again = [i for i, (shape, _) in enumerate(some) if _depends_on_others(shape)]
        costs = timer.part_costs(product, [*some, *(some[i] for i in again)])
        last = dict(zip(again, costs[len(some) :], strict=True))
        found += [last.get(i, cost) for i, cost in enumerate(costs[: len(some)])]
    return found


def _depends_on_others(shape: GemmShape) -> bool:
    return shape.operations <= _SMALL or shape.k <= _SHALLOW
