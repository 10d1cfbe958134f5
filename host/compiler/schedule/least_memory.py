"""The order of least peak memory, by sets of done nodes.

What is alive after a set of nodes does not depend on the order they ran in, so of all orders of a
set only the one of least peak counts. That is exact, and visits sets instead of orders.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.compiler.schedule.orders import bits, first_ready, masks, ready_after
from edgekit.host.compiler.schedule.timeline import Problem


@dataclass(frozen=True)
class _State:
    """A set of done nodes, reached with the least peak; `parent` is the set before `node`."""

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


def least_memory(problem: Problem, width: int) -> tuple[list[int], bool]:
    """The order, and whether it is proved: no level had more than `width` sets.

    Of several, one that keeps close to the importer's order.
    """
    dag, arena = problem.dag, problem.arena
    needs = masks(dag)
    level = {0: _State(0, first_ready(dag), arena.at_start, arena.at_start)}
    proved = True
    for _ in range(dag.size):
        following: dict[int, _State] = {}
        for state in level.values():
            for each in _steps(problem, needs, state):
                known = following.get(each.done)
                if known is None or each.peak < known.peak:
                    following[each.done] = each
        if len(following) > width:
            proved = False
            best = sorted(following.values(), key=lambda s: (s.peak, s.alive))[:width]
            following = {s.done: s for s in best}
        level = following
    (last,) = level.values()
    return last.order(), proved


def _steps(problem: Problem, needs: list[int], state: _State) -> list[_State]:
    """What may come next. A node that costs no peak and leaves no more alive than before can
    only help by coming at once, so that nothing else has to be tried."""
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
