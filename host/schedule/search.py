"""The best order of one part: proved where that is quick, else searched for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from edgekit.host.schedule.anneal import Score, anneal
from edgekit.host.schedule.least_memory import least_memory
from edgekit.host.schedule.least_time import least_time
from edgekit.host.schedule.orders import OrderCount, count_orders, shuffled
from edgekit.host.schedule.timeline import Problem, Timeline, simulate

Objective = Literal["time", "memory"]
_STEPS_PER_NODE = 30  # of the chain that makes a random order, where orders cannot be counted


@dataclass(frozen=True)
class Effort:
    """How much may be tried for one graph: numbers, not seconds, so that a result is repeatable.

    `sets` may be visited to count orders; `ways` to have done a set of nodes are kept at most,
    over all of its levels; `samples` orders are drawn at random and the best are improved, by
    looking at no more than `nodes` nodes, where the search cannot prove its result.
    """

    sets: int = 20_000
    ways: int = 6_000
    samples: int = 40
    nodes: int = 20_000


@dataclass(frozen=True)
class Found:
    """The chosen order of a part, the unit of each node (by node), and what it costs."""

    order: tuple[int, ...]
    units: tuple[int, ...]
    makespan: float
    peak: int
    import_makespan: float
    total: int | None
    tried: int
    proved: bool


@dataclass(frozen=True)
class _Candidate:
    order: tuple[int, ...]
    timeline: Timeline
    peak: int

    def score(self, objective: Objective) -> Score:
        time = self.timeline.makespan
        return (time, self.peak) if objective == "time" else (self.peak, time)


def keep_order(problem: Problem) -> Found:
    """The importer's order as it is."""
    given = _candidate(problem, range(problem.dag.size))
    return _found(given, given, None, 1, False)


def find_order(
    problem: Problem, objective: Objective, random: Random, effort: Effort = Effort()
) -> Found:
    """The order that is best by the objective, and of several the better by the other one.

    The importer's order stays if nothing is better.
    """
    given = _candidate(problem, range(problem.dag.size))
    count = count_orders(problem.dag, effort.sets)
    if count is not None and count.total == 1 and _time_is_the_same(problem):
        return _found(given, given, 1, 1, True)
    width = max(effort.ways // problem.dag.size, 4)
    exact, proved = _exact(problem, objective, given, width)
    best = min([given, exact], key=lambda c: c.score(objective))
    if proved:
        total = count.total if count else None
        return _found(best, given, total, total or 2, True)
    best, tried = _improve(problem, objective, best, count, random, effort)
    return _found(best, given, count.total if count else None, tried + 2, False)


def _exact(
    problem: Problem, objective: Objective, given: _Candidate, width: int
) -> tuple[_Candidate, bool]:
    """The best order by sets of done nodes, and whether it is proved to be the best."""
    if _time_is_the_same(problem):
        order, proved = least_memory(problem, width)
        return _candidate(problem, order), proved
    most, proved = math.inf, True
    known = given.timeline.makespan
    leanest = given
    if objective == "memory":
        order, proved = least_memory(problem, width)
        leanest = _candidate(problem, order)
        most, known = leanest.peak, leanest.timeline.makespan
    best = least_time(problem, width, known, most)
    if best is None:
        return leanest, proved
    timeline = simulate(problem, best.order, best.units)
    peak = problem.arena.peak(best.order)
    return _Candidate(tuple(best.order), timeline, peak), proved and best.proved


def _time_is_the_same(problem: Problem) -> bool:
    """Whether every order takes as long: one unit has all the work, and nothing to wait for."""
    if any(problem.loads):
        return False
    places = {tuple(c < math.inf for c in costs) for costs in problem.costs}
    return len(places) == 1 and sum(places.pop()) == 1


def _improve(
    problem: Problem,
    objective: Objective,
    best: _Candidate,
    count: OrderCount | None,
    random: Random,
    effort: Effort,
) -> tuple[_Candidate, int]:
    """Random orders, then local search from the best known: the better result, and all tries."""
    dag = problem.dag
    draw = _sampler(problem, count, random)
    samples = [_candidate(problem, draw()) for _ in range(effort.samples)]
    best = min([best, *samples], key=lambda c: c.score(objective))

    def score(order: Sequence[int]) -> Score:
        return _candidate(problem, order).score(objective)

    tries = effort.nodes // dag.size
    order, found = anneal(dag, best.order, score, tries, random)
    if found < best.score(objective):
        best = _candidate(problem, order)
    return best, len(samples) + tries


def _sampler(
    problem: Problem, count: OrderCount | None, random: Random
) -> Callable[[], Sequence[int]]:
    """Draws orders: uniformly where they were counted, else by the chain, started anew."""
    if count is not None:
        return lambda: count.sample(random)
    size = problem.dag.size
    return lambda: shuffled(problem.dag, range(size), random, size * _STEPS_PER_NODE)


def _candidate(problem: Problem, order: Sequence[int]) -> _Candidate:
    return _Candidate(tuple(order), simulate(problem, order), problem.arena.peak(order))


def _found(
    best: _Candidate, given: _Candidate, total: int | None, tried: int, proved: bool
) -> Found:
    return Found(
        order=best.order,
        units=best.timeline.units,
        makespan=best.timeline.makespan,
        peak=best.peak,
        import_makespan=given.timeline.makespan,
        total=total,
        tried=tried,
        proved=proved,
    )
