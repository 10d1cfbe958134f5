"""Chooses which chains run in bands, until no more bytes are alive than the limit allows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import cached_property

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.split.bands import BandPlan, apply_plan, candidate_plans
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.means import (
    with_means_of_rows,
    without_means_of_rows,
)
from edgekit.host.compiler.transforms.split.norms import (
    with_norms_of_rows,
    without_norms_of_rows,
)
from edgekit.host.compiler.transforms.split.recompute import Recomputed, recompute

BandsOf = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
"""Converts chains to bands under a limit of live bytes; returns the origin of new nodes, too."""

_ROUNDS = 32
_COPIES = 32  # most nodes that run again
_PATIENCE = 2  # tensors computed again without a gain
_WORK = 150_000  # operators; about four seconds


class _Banded:
    """A graph with bands, the origin of its new nodes, its live bytes, and added cost. The graphs
    behind it by one more chain in bands are made once, however many tries come here."""

    def __init__(self, graph: Graph, origin: dict[str, str], cost: float = 0.0) -> None:
        self.graph = graph
        self.origin = origin
        self.cost = cost
        self.live = Live(graph)
        self._after: dict[int, _Banded | None] = {}

    @property
    def peak(self) -> int:
        return self.live.peak

    @property
    def opened(self) -> bool:
        return "plans" in self.__dict__

    @cached_property
    def plans(self) -> tuple[BandPlan, ...]:
        """Plans for the chains around the peak."""
        return tuple(candidate_plans(self.graph, self.live, self.origin))

    def after(self, index: int) -> _Banded | None:
        """The graph with one of `plans`; None if a band turns out to be impossible."""
        if index not in self._after:
            plan, origin = self.plans[index], dict(self.origin)
            made = apply_plan(self.graph, plan, origin)
            cost = self.cost + plan.cost
            self._after[index] = None if made is None else _Banded(made, origin, cost)
        return self._after[index]


class _Policy(enum.Enum):
    """Which chains a round prefers among those that lower the peak within them."""

    CHEAPEST = "the least work"
    COVERING = "no neighbor, which could not become part of a chain later, exceeds the limit"
    WHOLE = "only those that lower the peak of the graph"


# Policies and goals, relative to the limit, where the first did not reach it
_TRIES = (
    *((_Policy.CHEAPEST, share) for share in (0.9, 0.8, 0.7)),
    *((_Policy.COVERING, share) for share in (1, 0.8)),
    (_Policy.WHOLE, 1),
)


class BandSearch:
    """Converts chains of graphs to bands; what is found for one limit serves the next.

    After the comparison of plans with `work` operators in total, no other graph is opened: deep
    networks in which nothing helps would take minutes.
    """

    def __init__(self, work: int = _WORK) -> None:
        self._roots: dict[Graph, _Banded] = {}
        self._left = work

    def in_bands(self, graph: Graph, limit: int) -> tuple[Graph, dict[str, str]]:
        """Convert chains with more than `limit` live bytes to bands, where that helps.

        Returns the graph and the origin of its new nodes. Peaks are lowered one after the other,
        each by the cheapest chain around it. If that does not reach the limit, other policies are
        tried, and lower goals, which lead to longer chains.
        """
        best = self._lower(graph, limit, limit, _Policy.CHEAPEST)
        if best.peak > limit:
            tries = ((int(limit * share), policy) for policy, share in _TRIES)
            found = [best, *(self._lower(graph, limit, *each) for each in tries)]
            best = min(found, key=lambda b: (max(b.peak, limit), b.cost))
        return best.graph, best.origin

    def in_bands_again(self, whole: Graph, limit: int) -> tuple[Graph, dict[str, str]]:
        """Like in_bands, but means and normalizations may be divided, and tensors alive at the peak
        may be computed again for late readers."""
        single, norms = with_norms_of_rows(whole)
        graph, rows = with_means_of_rows(single)
        copies = rows | {node.name: norm.norm.name for norm in norms for node in norm.after}
        copied: dict[str, str] = {}  # what runs again, and the nodes it repeats
        cost = 0.0
        found: list[_Banded] = []
        while True:
            banded = self._lower(graph, limit, limit, _Policy.COVERING)
            origin = copies | {name: copies.get(of, of) for name, of in banded.origin.items()}
            made = without_means_of_rows(banded.graph, single, rows)
            made = without_norms_of_rows(made, whole, norms, banded.origin | copied)
            left = {node.name for node in made.nodes}
            origin = {name: of for name, of in origin.items() if name in left}
            found.append(_Banded(made, origin, banded.cost + cost))
            if banded.peak <= limit or not _gains(found):
                break
            more = _recompute(graph, banded)
            if more is None or len(copied) + len(more.origin) > _COPIES:
                break
            graph = more.graph
            copied |= more.origin
            copies.update((name, copies.get(of, of)) for name, of in more.origin.items())
            cost += more.cost
        best = min(found, key=lambda b: (max(b.peak, limit), b.cost))
        return best.graph, best.origin

    def _lower(self, graph: Graph, limit: int, goal: int, policy: _Policy) -> _Banded:
        """Lower peaks to `goal` until at most `limit` bytes are alive."""
        banded = self._roots.setdefault(graph, _Banded(graph, {}))
        for _ in range(_ROUNDS):
            if banded.peak <= limit or (self._left <= 0 and not banded.opened):
                break
            if not banded.opened:
                self._left -= sum(len(plan.chain) for plan in banded.plans)
            ranked = _ranked(banded, limit, goal, policy)
            after = next((made for i in ranked if (made := banded.after(i))), None)
            if after is None:
                break
            banded = after
        return banded


def _ranked(banded: _Banded, limit: int, goal: int, policy: _Policy) -> list[int]:
    """The places in `plans` of those that help, the best first."""
    live = banded.live
    better: list[tuple[tuple[float, ...], int]] = []
    for i, plan in enumerate(banded.plans):
        others = live.peak_outside(plan.first, plan.end) if policy is _Policy.WHOLE else 0
        peak = max(plan.peak, others)
        if peak < live.peak:
            near = live.above(limit, plan.first, plan.end) if policy is _Policy.COVERING else 0
            # Prefer less work if the plan fits, else less memory.
            fits = peak <= goal
            cost = (plan.cost, float(peak)) if fits else (float(peak), plan.cost)
            better.append(((not fits, near, *cost, plan.first, plan.end), i))
    better.sort(key=lambda found: found[0])
    return [i for _, i in better]


def _gains(found: Sequence[_Banded]) -> bool:
    """Whether one of the last attempts needs less than all before."""
    before, last = found[:-_PATIENCE], found[-_PATIENCE:]
    return not before or min(b.peak for b in last) < min(b.peak for b in before)


def _recompute(graph: Graph, banded: _Banded) -> Recomputed | None:
    """Repeat in `graph` what is alive at the peak of the same graph in bands."""
    live, producer = banded.live, banded.graph.producer()
    origin = {node.name: banded.origin.get(node.name, node.name) for node in banded.graph.nodes}
    made = {node.name: node.outputs for node in graph.nodes}
    readers: dict[str, set[str]] = {}
    for name in live.alive_at(live.worst):
        known = (name,) if name in graph.tensors else made[origin[producer[name].name]]
        readers.update((each, set()) for each in known)
    for node in banded.graph.nodes[live.worst :]:
        for name in readers.keys() & {*node.inputs}:
            readers[name or ""].add(origin[node.name])
    at = [*made].index(origin[banded.graph.nodes[live.worst].name])
    return recompute(graph, readers, at)
