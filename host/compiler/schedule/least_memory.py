"""Finds the order of least peak memory by a search over sets of finished nodes.

The buffers live after a set of nodes do not depend on the order they ran in, so only the order with
the least peak matters per set. This is exact, and visits sets instead of orders.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from edgekit.host.compiler.schedule.orders import bits, first_ready, masks, ready_after
from edgekit.host.compiler.schedule.timeline import Problem


@dataclass(frozen=True)
class _State:
    """A set of finished nodes and the least peak to reach it; `parent` is without `node`."""

    done: int
    ready: int
    alive: int
    peak: int
    parent: _State | None = None
    node: int = -1

    def order(self) -> list[int]:
        found: list[int] = []
        state: _State | None = self
        while state is not None and state.parent is not None:
            found.append(state.node)
            state = state.parent
        return found[::-1]


@functools.lru_cache(maxsize=512)  # parts of a graph that is split several times
def least_memory(problem: Problem, width: int) -> tuple[tuple[int, ...], bool]:
    """Returns the order, and whether it is proven: no level had more than `width` sets.

    Among equals, prefers one close to the importer's order.
    """
    dag, arena = problem.dag, problem.arena
    needs = masks(dag)
    level = {0: _State(0, first_ready(dag), arena.at_start, arena.at_start)}
    proved = True
    for _ in range(dag.size):
        following: dict[int, _State] = {}
        for state in level.values():
            for each in _next_states(problem, needs, state):
                known = following.get(each.done)
                if known is None or each.peak < known.peak:
                    following[each.done] = each
        if len(following) > width:
            proved = False
            best = sorted(following.values(), key=lambda s: (s.peak, s.alive))[:width]
            following = {s.done: s for s in best}
        level = following
    (last,) = level.values()
    return tuple(last.order()), proved


def _next_states(problem: Problem, needs: list[int], state: _State) -> list[_State]:
    """The states that can follow. A node that neither raises the peak nor increases live memory is
    always best run immediately, so then no alternative is tried."""
    dag, arena = problem.dag, problem.arena
    found = []
    for node in bits(state.ready):
        made = state.alive + arena.made(node, state.done)
        peak = max(state.peak, made + arena.scratch[node])
        done = state.done | 1 << node
        alive = made - arena.freed(node, done)
        ready = ready_after(dag, needs, state.ready, node, done)
        after = _State(done, ready, alive, peak, state, node)
        if peak == state.peak and alive <= state.alive:
            return [after]
        found.append(after)
    return found
