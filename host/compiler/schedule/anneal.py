"""Local search over orders and units by simulated annealing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from edgekit.host.compiler.schedule.timeline import ANY, Problem

Score = tuple[float, float]
# Relative to the best score: a move this much worse is accepted about once in three
_FIRST_HEAT = 0.02
_LAST_HEAT = 0.0002
_UNIT_MOVES = 0.3  # fraction of moves that change units, if nodes have a choice
_BOTH_MOVES = 0.5  # fraction of these that also move the node within the order
_LONGEST_CHAIN = 8  # maximum nodes that change units together


@dataclass(frozen=True)
class Way:
    """An order, and the unit of each node; ANY selects the unit where it finishes first."""

    order: tuple[int, ...]
    units: tuple[int, ...]


def anneal(
    problem: Problem, start: Way, score: Callable[[Way], Score], tries: int, random: Random
) -> Way:
    """Returns the best of `tries` candidates, each one move away from the last accepted one.

    A move assigns a node or a chain of nodes to another unit, or moves a node within the order,
    anywhere between its last predecessor and its first successor.
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
                moved = _move_node(problem, moved, node, random) or moved
        else:
            moved = _move_node(problem, way, random.randrange(problem.dag.size), random)
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
    """Moves a node, and possibly a chain of successors, to one other unit."""
    unit = random.choice([u for u in choices[node] if u != way.units[node]])
    units = list(way.units)
    for _ in range(random.randrange(1, _LONGEST_CHAIN + 1)):
        if unit in choices[node]:
            units[node] = unit
        if not problem.dag.after[node]:
            break
        node = random.choice(problem.dag.after[node])
    return Way(way.order, tuple(units))


def _move_node(problem: Problem, way: Way, node: int, random: Random) -> Way | None:
    """Moves a node within the order; None if its position is fixed."""
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
    to += to >= at  # skips the current position
    rest = order[:at] + order[at + 1 :]
    return Way((*rest[:to], node, *rest[to:]), way.units)
