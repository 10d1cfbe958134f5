"""Local search over orders and units: small moves, taken by simulated annealing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from edgekit.host.compiler.schedule.timeline import ANY, Problem

Score = tuple[float, float]
_FIRST_HEAT = 0.02  # of the best score: a change this much worse is taken about once in three
_LAST_HEAT = 0.0002
_UNIT_MOVES = 0.3  # of all moves, where nodes have a choice
_BOTH_MOVES = 0.5  # of these, those that also put the node elsewhere in the order
_LONGEST_CHAIN = 8  # of nodes that change units together


@dataclass(frozen=True)
class Way:
    """An order, and the unit of each node by node: ANY lets it go where it is done first."""

    order: tuple[int, ...]
    units: tuple[int, ...]


def anneal(
    problem: Problem, start: Way, score: Callable[[Way], Score], tries: int, random: Random
) -> Way:
    """The best of `tries` ways, each one move away from the last that was taken.

    A move puts a node, or a chain of them, on another unit; or takes one out of the order and puts
    it back anywhere
    between the last node it waits for and the first that waits for it.
    """
    choices = [[ANY, *(u for u, c in enumerate(row) if c < math.inf)] for row in problem.costs]
    movable = [i for i, units in enumerate(choices) if len(units) > 2]
    way = best = start
    now = least = score(start)
    for t in range(tries):
        moved: Way | None
        if movable and random.random() < _UNIT_MOVES:
            node = random.choice(movable)
            moved = _on_another_unit(problem, way, choices, node, random)
            if random.random() < _BOTH_MOVES:
                moved = _elsewhere(problem, moved, node, random) or moved
        else:
            moved = _elsewhere(problem, way, random.randrange(problem.dag.size), random)
        if moved is None:
            continue
        found = score(moved)
        heat = least[0] * _FIRST_HEAT * (_LAST_HEAT / _FIRST_HEAT) ** (t / tries)
        worse = found[0] - now[0]
        if found <= now or (heat > 0 and random.random() < math.exp(-worse / heat)):
            way, now = moved, found
            if found < least:
                best, least = moved, found
    return best


def _on_another_unit(
    problem: Problem, way: Way, choices: Sequence[Sequence[int]], node: int, random: Random
) -> Way:
    """A node, and some that follow it one after the other, where they can, on one other unit."""
    unit = random.choice([u for u in choices[node] if u != way.units[node]])
    units = list(way.units)
    for _ in range(random.randrange(1, _LONGEST_CHAIN + 1)):
        if unit in choices[node]:
            units[node] = unit
        if not problem.dag.after[node]:
            break
        node = random.choice(problem.dag.after[node])
    return Way(way.order, tuple(units))


def _elsewhere(problem: Problem, way: Way, node: int, random: Random) -> Way | None:
    """A node at another place of the order; None if it has nowhere to go."""
    dag, order = problem.dag, way.order
    at = order.index(node)
    low = at
    while low > 0 and order[low - 1] not in dag.before[node]:
        low -= 1
    high = at
    while high + 1 < len(order) and order[high + 1] not in dag.after[node]:
        high += 1
    if low == high:
        return None
    to = random.randrange(low, high)
    to += to >= at  # anywhere but where it is
    rest = order[:at] + order[at + 1 :]
    return Way((*rest[:to], node, *rest[to:]), way.units)
