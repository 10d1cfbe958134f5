"""Counts the valid orders of a part and samples them at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from edgekit.host.compiler.schedule.dag import Dag

MOST_SETS = 20_000  # limit on sets of finished nodes visited when counting: tenths of a second


def masks(dag: Dag) -> list[int]:
    """The predecessors of each node as a bit mask."""
    return [sum(1 << b for b in before) for before in dag.before]


def bits(mask: int) -> Iterator[int]:
    """The set bits of a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def ready_after(dag: Dag, needs: Sequence[int], ready: int, node: int, done: int) -> int:
    """Nodes ready once `node` of `ready` has run; `done` includes `node`."""
    ready &= ~(1 << node)
    for a in dag.after[node]:
        if needs[a] & ~done == 0:
            ready |= 1 << a
    return ready


def first_ready(dag: Dag) -> int:
    """Nodes without predecessors."""
    return sum(1 << i for i in range(dag.size) if not dag.before[i])


class OrderCount:
    """The number of orders that continue from each set of finished nodes.

    There are far fewer sets of finished nodes than orders.
    """

    def __init__(self, dag: Dag, counts: dict[int, int]) -> None:
        self._dag = dag
        self._needs = masks(dag)
        self._counts = counts

    @property
    def total(self) -> int:
        return self._counts[0]

    def sample(self, random: Random) -> list[int]:
        """Samples one order uniformly."""
        order: list[int] = []
        done, ready = 0, first_ready(self._dag)
        while ready:
            left = random.randrange(self._counts[done])
            for node in bits(ready):
                left -= self._counts[done | 1 << node]
                if left < 0:
                    break
            done |= 1 << node
            ready = ready_after(self._dag, self._needs, ready, node, done)
            order.append(node)
        return order


def count_orders(dag: Dag, most_sets: int = MOST_SETS) -> OrderCount | None:
    """The exact count; None if it would visit more than `most_sets` sets."""
    needs = masks(dag)
    levels: list[dict[int, int]] = [{0: first_ready(dag)}]
    visited = 1
    for _ in range(dag.size):
        following: dict[int, int] = {}
        for done, ready in levels[-1].items():
            for node in bits(ready):
                after = done | 1 << node
                if after not in following:
                    following[after] = ready_after(dag, needs, ready, node, after)
            if visited + len(following) > most_sets:
                return None
        visited += len(following)
        levels.append(following)
    counts = {(1 << dag.size) - 1: 1}
    for level in reversed(levels[:-1]):
        for done, ready in level.items():
            counts[done] = sum(counts[done | 1 << node] for node in bits(ready))
    return OrderCount(dag, counts)


def shuffled(dag: Dag, order: Sequence[int], random: Random, steps: int) -> list[int]:
    """`order` after `steps` steps of the Karzanov-Khachiyan chain.

    Each step picks two neighbors and swaps them with probability 1/2 unless one depends on the
    other; after on the order of size³ · log size steps, every order is equally likely.
    """
    found = list(order)
    befores = [frozenset(before) for before in dag.before]
    for _ in range(steps if dag.size > 1 else 0):
        i = random.randrange(dag.size - 1)
        if random.random() < 0.5 and found[i] not in befores[found[i + 1]]:
            found[i], found[i + 1] = found[i + 1], found[i]
    return found
