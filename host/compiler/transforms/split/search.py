"""Chooses which chains run in bands, until no more bytes are alive than the limit allows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.split.bands import BandPlan, apply_plan, candidate_plans
from edgekit.host.compiler.transforms.split.live import Live
from edgekit.host.compiler.transforms.split.means import (
    with_means_of_rows,
    without_means_of_rows,
)
from edgekit.host.compiler.transforms.split.recompute import Recomputed, recompute

BandsOf = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
"""Converts chains to bands under a limit of live bytes; returns the origin of new nodes, too."""

_ROUNDS = 32
_COPIES = 32  # most nodes that run again
_PATIENCE = 2  # tensors computed again without a gain


@dataclass(frozen=True, eq=False)
class _Banded:
    """A graph with bands, the origin of its new nodes, its peak of live bytes, and added cost."""

    graph: Graph
    origin: dict[str, str]
    peak: int
    cost: float


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


def in_bands(graph: Graph, limit: int) -> tuple[Graph, dict[str, str]]:
    """Convert chains with more than `limit` live bytes to bands, where that helps.

    Returns the graph and the origin of its new nodes. Peaks are lowered one after the other, each
    by the cheapest chain around it. If that does not reach the limit, other policies are tried, and
    lower goals, which lead to longer chains.
    """
    best = _in_bands(graph, limit, limit, _Policy.CHEAPEST)
    if best.peak > limit:
        tries = ((int(limit * share), policy) for policy, share in _TRIES)
        found = [best, *(_in_bands(graph, limit, *each) for each in tries)]
        best = min(found, key=lambda b: (max(b.peak, limit), b.cost))
    return best.graph, best.origin


def in_bands_again(whole: Graph, limit: int) -> tuple[Graph, dict[str, str]]:
    """Like in_bands, but means may be divided, and tensors alive at the peak may be computed again
    for late readers."""
    graph, rows = with_means_of_rows(whole)
    copies = dict(rows)
    cost = 0.0
    found: list[_Banded] = []
    while True:
        banded = _in_bands(graph, limit, limit, _Policy.COVERING)
        origin = copies | {name: copies.get(of, of) for name, of in banded.origin.items()}
        made = without_means_of_rows(banded.graph, whole, rows)
        left = {node.name for node in made.nodes}
        origin = {name: of for name, of in origin.items() if name in left}
        found.append(_Banded(made, origin, banded.peak, banded.cost + cost))
        if banded.peak <= limit or not _gains(found):
            break
        more = _recompute(graph, banded)
        if more is None or len(copies) + len(more.origin) > _COPIES:
            break
        graph = more.graph
        copies.update((name, copies.get(of, of)) for name, of in more.origin.items())
        cost += more.cost
    best = min(found, key=lambda b: (max(b.peak, limit), b.cost))
    return best.graph, best.origin


def _gains(found: Sequence[_Banded]) -> bool:
    """Whether one of the last attempts needs less than all before."""
    before, last = found[:-_PATIENCE], found[-_PATIENCE:]
    return not before or min(b.peak for b in last) < min(b.peak for b in before)


def _recompute(graph: Graph, banded: _Banded) -> Recomputed | None:
    """Repeat in `graph` what is alive at the peak of the same graph in bands."""
    live, producer = Live(banded.graph), banded.graph.producer()
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


def _in_bands(graph: Graph, limit: int, goal: int, policy: _Policy) -> _Banded:
    """Lower peaks to `goal` until at most `limit` bytes are alive."""
    origin: dict[str, str] = {}
    total = 0.0
    for _ in range(_ROUNDS):
        live = Live(graph)
        if live.peak <= limit:
            break
        better: list[tuple[tuple[float, ...], BandPlan]] = []
        for plan in candidate_plans(graph, live, origin):
            others = live.peak_outside(plan.first, plan.end) if policy is _Policy.WHOLE else 0
            peak = max(plan.peak, others)
            if peak < live.peak:
                near = live.above(limit, plan.first, plan.end) if policy is _Policy.COVERING else 0
                # Prefer less work if the plan fits, else less memory.
                fits = peak <= goal
                cost = (plan.cost, float(peak)) if fits else (float(peak), plan.cost)
                better.append(((not fits, near, *cost, plan.first, plan.end), plan))
        better.sort(key=lambda found: found[0])
        made = ((apply_plan(graph, plan, origin), plan.cost) for _, plan in better)
        after, cost_of = next(((m, c) for m, c in made if m is not None), (None, 0.0))
        if after is None:
            break
        graph = after
        total += cost_of
    return _Banded(graph, origin, Live(graph).peak, total)
