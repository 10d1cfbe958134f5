"""What a board's units do when: the queues of an order, simulated.

Every unit takes its operators in the order's order. One starts when its unit is free, what it
reads is made (a little later if another unit made it), and its constants are loaded. A board with
a unit for memory loads them ahead, into two buffers: the next load waits until the constants of
the operator before the last are used up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.schedule.dag import Dag
from edgekit.host.schedule.memory import Buffers


@dataclass(frozen=True)
class Problem:
    """A part to be ordered. Times in microseconds.

    `costs[i][u]` is how long node i keeps unit u, infinite if it cannot run there; `loads[i]` how
    long the memory unit loads for it. A result reaches another unit `handover` later, and what the
    part reads was made by unit `entry`, at 0. `arena` is for the peak of memory.
    """

    dag: Dag
    costs: tuple[tuple[float, ...], ...]
    loads: tuple[float, ...]
    handover: float
    entry: int | None
    arena: Buffers

    @property
    def units(self) -> int:
        return len(self.costs[0]) if self.costs else 1

    def entry_at(self, unit: int) -> float:
        """When `unit` has what the part reads."""
        return 0.0 if self.entry in (None, unit) else self.handover


@dataclass(frozen=True)
class Timeline:
    """Where and when each node ran, by node; `makespan` is when the last one was done."""

    units: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def makespan(self) -> float:
        return max(self.ends, default=0.0)


class Queues:
    """The units while they are filled: the one definition of who waits for whom."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._free = [0.0] * problem.units
        self._loaded = 0.0
        self._buffers = (0.0, 0.0)  # when the constants of the last two that had some are used up
        self._arrivals: list[list[float]] = [[] for _ in problem.costs]

    def best(self, node: int) -> tuple[float, float, int]:
        """End, start and unit of `node`, put where it is done first."""
        return min(
            (*self.span(node, unit)[::-1], unit)
            for unit, cost in enumerate(self._problem.costs[node])
            if cost < math.inf
        )

    def span(self, node: int, unit: int) -> tuple[float, float]:
        """When `node` would start and end on `unit`."""
        problem = self._problem
        start = max(self._free[unit], problem.entry_at(unit) if not problem.dag.before[node] else 0)
        for p in problem.dag.before[node]:
            start = max(start, self._arrivals[p][unit])
        if problem.loads[node]:
            start = max(start, max(self._loaded, self._buffers[0]) + problem.loads[node])
        return start, start + problem.costs[node][unit]

    def put(self, node: int, unit: int, end: float) -> None:
        """Lets `node` run on `unit` until `end`."""
        problem = self._problem
        if problem.loads[node]:
            self._loaded = max(self._loaded, self._buffers[0]) + problem.loads[node]
            self._buffers = (self._buffers[1], end)
        self._free[unit] = end
        self._arrivals[node] = [
            end + (0.0 if u == unit else problem.handover) for u in range(problem.units)
        ]


def simulate(
    problem: Problem, order: Sequence[int], units: Sequence[int] | None = None
) -> Timeline:
    """The timeline of an order; without `units`, each node goes where it is done first."""
    queues = Queues(problem)
    chosen, starts, ends = [0] * len(order), [0.0] * len(order), [0.0] * len(order)
    for node in order:
        if units is None:
            ends[node], starts[node], chosen[node] = queues.best(node)
        else:
            chosen[node] = units[node]
            starts[node], ends[node] = queues.span(node, units[node])
        queues.put(node, chosen[node], ends[node])
    return Timeline(tuple(chosen), tuple(starts), tuple(ends))
