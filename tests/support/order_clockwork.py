"""A simulated core that times operator orders at once, where a real one would take minutes."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import UnreachableError
from edgekit.host.lab.tune.operators import ModelCosts


class OrderClockwork:
    """An operator takes half as long, 500 cycles, directly after one with a greater name. The core
    disconnects after `left` answers."""

    source, unit, per_us = "estimate", "cycles", 1.0
    left = 1000

    def __init__(self, *_: object) -> None:
        pass

    def times(self, bundles: Sequence[Bundle]) -> list[list[ModelCosts]]:
        if OrderClockwork.left == 0:
            raise UnreachableError("board 'here': expected an answer, found the link cut")
        OrderClockwork.left -= 1
        return [[self._times(each)] for each in bundles]

    def _times(self, bundle: Bundle) -> ModelCosts:
        before, costs = "", {}
        for each in bundle.manifest.operators:
            costs[each.name] = 500.0 if before > each.name else 1000.0
            before = each.name
        return ModelCosts(costs, sum(costs.values()))
