"""Finds the order and units of least makespan by a search over sets of finished nodes.

Of two partial schedules of the same nodes, one that has every unit free and every result available
no later, at no higher peak memory, dominates, and the other is dropped. Partial schedules that
cannot beat the best known timeline are dropped as well. This is exact as long as no level holds
more than `width` partial schedules.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass

from edgekit.host.compiler.schedule.bounds import only_unit, tails
from edgekit.host.compiler.schedule.orders import bits, first_ready, masks, ready_after
from edgekit.host.compiler.schedule.timeline import Problem

_ROUNDING = 1e-6  # microseconds: far below the rounding of a cost


@dataclass(slots=True)
class _Way:
    """A partial schedule for a set of nodes.

    `free`: when each unit becomes free. `memory`: when the loads of the memory unit are done and
    its two buffers are used up. `arrivals`: when results that are still needed reach each unit, by
    node. `holders`: bit mask of the units that need not fetch a result, for results that take time
    to fetch.
    """

    done: int
    ready: int
    free: tuple[float, ...]
    memory: tuple[float, float, float]
    arrivals: dict[int, tuple[float, ...]]
    holders: dict[int, int]
    alive: int
    peak: int
    parent: _Way | None = None
    node: int = -1
    unit: int = -1
    bound: float = 0.0

    def times(self) -> tuple[float, ...]:
        """All times that later nodes may wait for, and the peak; smaller is never worse."""
        found = [*self.free, *self.memory, float(self.peak)]
        for node in sorted(self.arrivals):
            found += map(max, self.arrivals[node], self.free)
        for node in sorted(self.holders):
            found += [float(~self.holders[node] >> unit & 1) for unit in range(len(self.free))]
        return tuple(found)


@dataclass(frozen=True)
class FastestOrder:
    """The result: an order (empty if none was found), the unit of each node, and whether it is
    proven optimal."""

    order: list[int]
    units: list[int]
    proved: bool


def least_time(problem: Problem, width: int, known: float, most_memory: float) -> FastestOrder:
    """Finds the least makespan, and among those orders the least peak memory.

    Only orders of at most `known` microseconds and `most_memory` bytes are considered.
    """
    search = _Search(problem)
    known += _ROUNDING
    level = [search.start()]
    proved = True
    for _ in range(problem.dag.size):
        fronts: dict[int, list[tuple[tuple[float, ...], _Way]]] = {}
        for way in level:
            for each in search.steps(way):
                if each.peak > most_memory:
                    continue
                each.bound = search.bound(each)
                if each.bound <= known:
                    _insert_nondominated(fronts.setdefault(each.done, []), each)
        level = [way for front in fronts.values() for _, way in front]
        if len(level) > width:
            proved = False
            level = sorted(level, key=lambda w: (w.bound, sum(w.free), w.peak))[:width]
    if not level:
        return FastestOrder([], [], proved)
    return _trace_best(min(level, key=lambda w: (max(w.free), w.peak)), problem.dag.size, proved)


def _insert_nondominated(front: list[tuple[tuple[float, ...], _Way]], way: _Way) -> None:
    """Adds a partial schedule to those of the same nodes unless it is dominated."""
    times = way.times()
    for other, _ in front:
        if all(a <= b for a, b in zip(other, times, strict=True)):
            return
    front[:] = [f for f in front if not all(a <= b for a, b in zip(times, f[0], strict=True))]
    front.append((times, way))


def _trace_best(last: _Way, size: int, proved: bool) -> FastestOrder:
    order, units = [], [0] * size
    way = last
    while way.parent is not None:
        order.append(way.node)
        units[way.node] = way.unit
        way = way.parent
    return FastestOrder(order[::-1], units, proved)


class _Search:
    """The invariants of one search."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._needs = masks(problem.dag)
        self._afters = [sum(1 << a for a in after) for after in problem.dag.after]
        least = [min(costs) for costs in problem.costs]
        self._work = [(only_unit(problem, i), cost) for i, cost in enumerate(least)]
        tail = tails(problem)
        self._longest = [
            sorted(((tail[a], 1 << a) for a in after), reverse=True) for after in problem.dag.after
        ]
        self._left: dict[int, tuple[tuple[float, ...], float]] = {}

    def start(self) -> _Way:
        problem = self._problem
        arena = problem.arena.at_start
        free = (0.0,) * problem.units
        return _Way(0, first_ready(problem.dag), free, (0.0, 0.0, 0.0), {}, {}, arena, arena)

    def steps(self, way: _Way) -> Iterator[_Way]:
        """Yields every possible next node on every unit that can run it."""
        arena = self._problem.arena
        for node in bits(way.ready):
            made = way.alive + arena.made(node, way.done)
            peak = max(way.peak, made + arena.scratch[node])
            done = way.done | 1 << node
            alive = made - arena.freed(node, done)
            ready = ready_after(self._problem.dag, self._needs, way.ready, node, done)
            for unit, cost in enumerate(self._problem.costs[node]):
                if cost < math.inf:
                    free, memory, arrivals = self._run_node(way, node, unit, done)
                    holders = self._holders_after(way, node, unit, done)
                    yield _Way(
                        done, ready, free, memory, arrivals, holders, alive, peak, way, node, unit
                    )  # fmt: skip

    def _run_node(
        self, way: _Way, node: int, unit: int, done: int
    ) -> tuple[tuple[float, ...], tuple[float, float, float], dict[int, tuple[float, ...]]]:
        """The times at which units and results are available after `node` ran on `unit`, as in
        timeline.Queues."""
        problem = self._problem
        # `free` is 0 for an unused unit, since one that never starts delays nothing.
        start = max(way.free[unit], problem.late[unit])
        cost = problem.costs[node][unit]
        for p in problem.dag.before[node]:
            start = max(start, way.arrivals[p][unit])
            if p in way.holders and not way.holders[p] >> unit & 1:
                cost += problem.moves[p]
        loaded, older, newer = way.memory
        if problem.loads[node]:
            loaded = max(loaded, older) + problem.loads[node]
            start = max(start, loaded)
        end = start + cost
        memory = (loaded, newer, end) if problem.loads[node] else way.memory
        arrivals = {n: t for n, t in way.arrivals.items() if self._afters[n] & ~done}
        if self._afters[node]:
            late = end + problem.handover
            arrivals[node] = tuple(end if u == unit else late for u in range(problem.units))
        free = (*way.free[:unit], end, *way.free[unit + 1 :])
        return free, memory, arrivals

    def _holders_after(self, way: _Way, node: int, unit: int, done: int) -> dict[int, int]:
        """The holders of results that are still needed after `node` ran on `unit`."""
        problem = self._problem
        read = problem.dag.before[node]
        found = {
            n: units | (n in read) << unit
            for n, units in way.holders.items()
            if self._afters[n] & ~done
        }
        if self._afters[node] and problem.moves[node]:
            found[node] = 1 << unit
        return found

    def bound(self, way: _Way) -> float:
        """A lower bound of the makespan of any continuation."""
        fixed, total = self._remaining_work(way.done)
        free, done = way.free, way.done
        least = max((sum(free) + total) / len(free), *map(operator.add, free, fixed))
        for node, arrivals in way.arrivals.items():
            longest = next(tail for tail, after in self._longest[node] if not after & done)
            there = min(map(max, arrivals, free))
            least = max(least, there + longest)
        return float(least)

    def _remaining_work(self, done: int) -> tuple[tuple[float, ...], float]:
        """The remaining work tied to each unit, and all remaining work."""
        found = self._left.get(done)
        if found is None:
            fixed = [0.0] * self._problem.units
            total = 0.0
            for node, (unit, cost) in enumerate(self._work):
                if not done >> node & 1:
                    total += cost
                    if unit is not None:
                        fixed[unit] += cost
            found = self._left[done] = (tuple(fixed), total)
        return found
