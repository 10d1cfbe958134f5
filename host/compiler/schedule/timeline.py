"""Simulates the queues of a board's units for an order.

Every unit runs its operators in the given order. An operator starts when its unit is free, its
inputs are complete (with a delay if another unit computed them), and its constants are loaded. A
unit fetches each result of another unit once, for all of its operators that read it. On a board
with a memory unit, constants are loaded ahead into two buffers: the next load waits until the
constants of the operator before last are used up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.schedule.dag import Dag
from edgekit.host.compiler.schedule.memory import Buffers

ANY = -1  # a unit that is not chosen yet


@dataclass(frozen=True)
class Problem:
    """A part to be ordered; times are in microseconds.

    `costs[i][u]`: how long node i occupies unit u, infinite if it cannot run there. `loads[i]`: how
    long the memory unit loads its constants. Another unit sees a result `handover` later, and the
    first node there that reads it takes `moves[i]` longer. Unit u starts at `late[u]`, for units
    that join later. `arena` determines peak memory.
    """

    dag: Dag
    costs: tuple[tuple[float, ...], ...]
    loads: tuple[float, ...]
    handover: float
    moves: tuple[float, ...]
    late: tuple[float, ...]
    arena: Buffers

    @property
    def units(self) -> int:
        return len(self.costs[0]) if self.costs else 1


@dataclass(frozen=True)
class Timeline:
    """The unit and time of each node; `makespan` is when the last node finished."""

    units: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def makespan(self) -> float:
        return max(self.ends, default=0.0)


def simulate(
    problem: Problem, order: Sequence[int], units: Sequence[int] | None = None
) -> Timeline:
    """The timeline of an order. A node with unit ANY, or any node if `units` is None, is assigned
    where it finishes first."""
    size = len(order)
    chosen, starts, ends = [ANY] * size, [0.0] * size, [0.0] * size
    free = list(problem.late)
    holders = [0] * size  # bit mask of units that have a node's result
    loaded, buffers = 0.0, (0.0, 0.0)  # when the last two loads are used up
    before, handover, moves = problem.dag.before, problem.handover, problem.moves
    for node in order:
        if problem.loads[node]:
            loaded = max(loaded, buffers[0]) + problem.loads[node]
        wanted = ANY if units is None else units[node]
        best = math.inf
        for unit, cost in enumerate(problem.costs[node]):
            if cost == math.inf or wanted not in (ANY, unit):
                continue
            start = free[unit]
            if problem.loads[node] and loaded > start:
                start = loaded
            for p in before[node]:
                there = ends[p]
                if not holders[p] >> unit & 1:
                    there += handover
                    cost += moves[p]
                if there > start:
                    start = there
            if start + cost < best:
                best = ends[node] = start + cost
                starts[node], chosen[node] = start, unit
        free[chosen[node]] = best
        holders[node] = mine = 1 << chosen[node]
        for p in before[node]:
            holders[p] |= mine
        if problem.loads[node]:
            buffers = (buffers[1], best)
    return Timeline(tuple(chosen), tuple(starts), tuple(ends))
