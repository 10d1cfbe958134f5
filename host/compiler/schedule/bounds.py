"""Lower bounds of any order, and a heuristic order that comes close."""

from __future__ import annotations

import heapq
import math

from edgekit.host.compiler.schedule.timeline import ANY, Problem


def tails(problem: Problem) -> list[float]:
    """The longest path from each node's start to the end, with each node on its fastest unit."""
    found = [0.0] * problem.dag.size
    for i in reversed(range(problem.dag.size)):
        later = max((found[a] for a in problem.dag.after[i]), default=0.0)
        found[i] = min(problem.costs[i]) + later
    return found


def only_unit(problem: Problem, node: int) -> int | None:
    """The only unit that can run a node; None if there is a choice."""
    able = [u for u, cost in enumerate(problem.costs[node]) if cost < math.inf]
    return able[0] if len(able) == 1 else None


def least_makespan(problem: Problem) -> float:
    """Lower bound of the makespan: the longest path, work tied to one unit, and all loads."""
    alone = [0.0] * problem.units
    for node, costs in enumerate(problem.costs):
        unit = only_unit(problem, node)
        if unit is not None:
            alone[unit] += costs[unit]
    begun = [late + work if work else 0.0 for late, work in zip(problem.late, alone, strict=True)]
    return max([*tails(problem), *begun, sum(problem.loads)], default=0.0)


def least_peak(problem: Problem) -> int:
    """Lower bound of peak memory: the start, and any one node plus what stays live throughout."""
    arena = problem.arena
    through = sum(
        size
        for size, given, kept in zip(arena.sizes, arena.given, arena.kept, strict=True)
        if given and kept
    )
    single = []
    for node, touched in enumerate(arena.touched):
        own = sum(arena.sizes[b] for b in touched if not (arena.given[b] and arena.kept[b]))
        single.append(through + own + arena.scratch[node])
    return max([arena.at_start, *single])


def longest_path_first(problem: Problem) -> list[int]:
    """The fastest unit for nodes on the longest path; ANY for the others, which yield."""
    length = tails(problem)
    units = [ANY] * problem.dag.size
    ahead = [i for i in range(problem.dag.size) if not problem.dag.before[i]]
    while ahead:
        node = max(ahead, key=lambda i: length[i])
        units[node] = problem.costs[node].index(min(problem.costs[node]))
        ahead = list(problem.dag.after[node])
    return units


def by_longest_path(problem: Problem) -> tuple[int, ...]:
    """Nodes ordered by descending longest path to the end."""
    urgency = tails(problem)
    left = [len(before) for before in problem.dag.before]
    ready = [(-urgency[i], i) for i in range(problem.dag.size) if not left[i]]
    heapq.heapify(ready)
    order = []
    while ready:
        node = heapq.heappop(ready)[1]
        order.append(node)
        for a in problem.dag.after[node]:
            left[a] -= 1
            if not left[a]:
                heapq.heappush(ready, (-urgency[a], a))
    return tuple(order)
