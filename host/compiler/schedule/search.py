"""Finds the best order of one part: proven if that is quick, otherwise by search."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from edgekit.host.compiler.schedule.anneal import Score, Way, anneal
from edgekit.host.compiler.schedule.bounds import (
    by_longest_path,
    least_makespan,
    least_peak,
    longest_path_first,
)
from edgekit.host.compiler.schedule.least_memory import least_memory
from edgekit.host.compiler.schedule.least_time import least_time
from edgekit.host.compiler.schedule.orders import OrderCount, count_orders, shuffled
from edgekit.host.compiler.schedule.timeline import ANY, Problem, Timeline, simulate

Objective = Literal["time", "memory"]
_TRIES_PER_NODE = 25  # moves: more do not help small parts
_STEPS_PER_NODE = 30  # of the chain that generates a random order if orders cannot be counted


@dataclass(frozen=True)
class Effort:
    """Limits on the search for one part, as counts, not seconds, so that results are repeatable.

    `sets` limits the sets of finished nodes visited to count orders and to find the least memory;
    `ways` limits the partial schedules kept to find the least time. If these prove nothing,
    `samples` random orders are drawn, and the best is improved by moves that evaluate `nodes` nodes
    in total. Parts of more than `size` nodes, such as unrolled loops, keep the importer's order,
    because the cost is quadratic in that.
    """

    sets: int = 6_000
    ways: int = 600
    samples: int = 20
    nodes: int = 150_000
    size: int = 2_000


USUAL = Effort()


@dataclass(frozen=True)
class FoundOrder:
    """The chosen order of a part, the unit of each node, and its cost."""

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


def keep_order(problem: Problem) -> FoundOrder:
    """The importer's order, with each node on the unit where it finishes first."""
    given = _evaluate_order(problem, range(problem.dag.size))
    return _to_found(given, given, None, 1, False)


def given_order(problem: Problem, order: Sequence[int], found: FoundOrder) -> FoundOrder:
    """`found` with its order replaced by a given one."""
    given = _evaluate_order(problem, order)
    units, span = given.timeline.units, given.timeline.makespan
    return replace(
        found, order=given.order, units=units, makespan=span, peak=given.peak, proved=False
    )


@functools.lru_cache(maxsize=512)  # parts of a graph that is planned several times
def find_order(
    problem: Problem, objective: Objective, seed: str, effort: Effort = USUAL
) -> FoundOrder:
    """Returns the best order by `objective`; ties are broken by the other objective.

    The importer's order is kept if nothing is better.
    """
    random = Random(seed)
    if problem.dag.size > effort.size:
        return keep_order(problem)
    given = _evaluate_order(problem, range(problem.dag.size))
    count = count_orders(problem.dag, effort.sets)
    total = count.total if count else None
    least = (least_makespan(problem), float(least_peak(problem)))
    if objective == "memory":
        least = (least[1], least[0])
    search = _Search(problem, objective, random, effort, least)
    best, tried, proved = search.run(given, count)
    if proved:
        tried = total or tried
    return _to_found(best, given, total, tried, proved)


@dataclass(frozen=True)
class _Search:
    """One search; `least` is a lower bound of the score."""

    problem: Problem
    objective: Objective
    random: Random
    effort: Effort
    least: Score

    def run(self, given: _Candidate, count: OrderCount | None) -> tuple[_Candidate, int, bool]:
        """Returns the best candidate, the number of orders examined, and whether it is proven
        optimal."""
        if self._score(given) == self.least:
            return given, 1, True
        width = max(self.effort.sets // self.problem.dag.size, 4)
        order, proved = least_memory(self.problem, width)
        lean = _evaluate_order(self.problem, order)
        best = min(given, lean, key=self._score)
        if _time_is_the_same(self.problem):
            if proved or best.peak == least_peak(self.problem):
                return best, 2, True
            best, tried = self._search_randomly(best, count)
            return best, tried + 2, False
        urgent = by_longest_path(self.problem)
        for units in (None, longest_path_first(self.problem)):
            best = min(best, _evaluate_order(self.problem, urgent, units), key=self._score)
        if self._score(best) == self.least:
            return best, 4, True
        best, tried = self._search_randomly(best, count)
        best, exact = self._search_exhaustively(best)
        # Prove the least memory first, then the least time within it.
        if self.objective == "memory":
            exact &= proved or best.peak == self.least[0]
        return best, tried + 5, exact or self._score(best)[0] == self.least[0]

    def _score(self, candidate: _Candidate) -> Score:
        return candidate.score(self.objective)

    def _search_randomly(
        self, best: _Candidate, count: OrderCount | None
    ) -> tuple[_Candidate, int]:
        """Tries random orders, then moves from the best; returns the better result and all
        attempts."""
        dag = self.problem.dag
        draw = _make_sampler(self.problem, count, self.random)
        samples = [_evaluate_order(self.problem, draw()) for _ in range(self.effort.samples)]
        best = min([best, *samples], key=self._score)

        def score(way: Way) -> Score:
            time = simulate(self.problem, way.order, way.units).makespan
            if self.objective == "time":
                return time, 0.0  # among equal times, the search over sets finds the least memory
            return self.problem.arena.peak(way.order), time

        tries = min(self.effort.nodes // dag.size, _TRIES_PER_NODE * dag.size)
        start = Way(best.order, (ANY,) * dag.size)
        way = anneal(self.problem, start, score, tries, self.random)
        moved = _evaluate_order(self.problem, way.order, way.units)
        return min(best, moved, key=self._score), len(samples) + tries

    def _search_exhaustively(self, best: _Candidate) -> tuple[_Candidate, bool]:
        """Searches exhaustively for an improvement; returns the best and whether it is proven."""
        width = max(self.effort.ways // self.problem.dag.size, 8)
        known = best.timeline.makespan
        most = best.peak if self.objective == "memory" else math.inf
        found = least_time(self.problem, width, known, most)
        if found.order:
            timeline = simulate(self.problem, found.order, found.units)
            exact = _Candidate(tuple(found.order), timeline, self.problem.arena.peak(found.order))
            best = min(best, exact, key=self._score)
        return best, found.proved


def _time_is_the_same(problem: Problem) -> bool:
    """True if every order takes the same time: a single unit has all the work and waits for
    nothing."""
    if any(problem.loads):
        return False
    places = {tuple(c < math.inf for c in costs) for costs in problem.costs}
    return len(places) == 1 and sum(places.pop()) == 1


def _make_sampler(
    problem: Problem, count: OrderCount | None, random: Random
) -> Callable[[], Sequence[int]]:
    """Samples orders: uniformly if they were counted, else by a chain that restarts each time."""
    if count is not None:
        return lambda: count.sample(random)
    size = problem.dag.size
    return lambda: shuffled(problem.dag, range(size), random, size * _STEPS_PER_NODE)


def _evaluate_order(
    problem: Problem, order: Sequence[int], units: Sequence[int] | None = None
) -> _Candidate:
    return _Candidate(tuple(order), simulate(problem, order, units), problem.arena.peak(order))


def _to_found(
    best: _Candidate, given: _Candidate, total: int | None, tried: int, proved: bool
) -> FoundOrder:
    return FoundOrder(
        order=best.order,
        units=best.timeline.units,
        makespan=best.timeline.makespan,
        peak=best.peak,
        import_makespan=given.timeline.makespan,
        total=total,
        tried=tried,
        proved=proved,
    )
