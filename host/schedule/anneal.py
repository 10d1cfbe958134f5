"""Local search over orders: moves of one node, taken by simulated annealing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from edgekit.host.schedule.dag import Dag

Score = tuple[float, float]
_FIRST_HEAT = 0.02  # of the start's score: a change this much worse is taken about once in three
_LAST_HEAT = 0.0002


def anneal(
    dag: Dag,
    start: Sequence[int],
    score: Callable[[Sequence[int]], Score],
    tries: int,
    random: Random,
) -> tuple[list[int], Score]:
    """The best of `tries` orders, each one move away from the last that was taken.

    A move takes a node out and puts it back anywhere between the last node it waits for and the
    first that waits for it.
    """
    order = list(start)
    now = best = score(order)
    kept = list(order)
    for t in range(tries):
        moved = _moved(dag, order, random)
        if moved is None:
            continue
        found = score(moved)
        heat = best[0] * _FIRST_HEAT * (_LAST_HEAT / _FIRST_HEAT) ** (t / tries)
        worse = found[0] - now[0]
        if worse < 0 or (worse == 0 and found <= now) or _taken(worse, heat, random):
            order, now = moved, found
            if found < best:
                kept, best = list(order), found
    return kept, best


def _taken(worse: float, heat: float, random: Random) -> bool:
    return heat > 0 and random.random() < math.exp(-worse / heat)


def _moved(dag: Dag, order: list[int], random: Random) -> list[int] | None:
    """The order after one move; None if the picked node has nowhere else to go."""
    at = random.randrange(len(order))
    node = order[at]
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
    return [*rest[:to], node, *rest[to:]]
