"""Assigns one of two labels to each of many items at minimum cost: a minimum cut (Dinic)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

_SCALE = 1e6  # capacities are integers, so that no rounding error leaves a path open
_ENDLESS = 10**18


class TwoLabels:
    """Items are numbered from 0. Costs are nonnegative; infinite where a label is impossible."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]  # source: label 0, sink: label 1
        self._to: list[int] = []
        self._room: list[int] = []

    def thing(self, first: float, second: float) -> int:
        """Add an item with the cost of either label; returns its number."""
        self._edges.append([])
        number = len(self._edges) - 3
        self._add_edge(0, number + 2, second)
        self._add_edge(number + 2, 1, first)
        return number

    def differ(self, first: int, second: int, cost: float) -> None:
        """Add a cost that applies if item `first` has label 0 and item `second` label 1."""
        self._add_edge(first + 2, second + 2, cost)

    def convert_between(self, made: int, users: set[int], cost: float) -> None:
        """Add a cost for converting the output of `made` for `users` with the other label; charged
        once per label, however many users need it."""
        to_second, to_first = self.thing(0, 0), self.thing(0, 0)
        self.differ(made, to_second, cost)
        self.differ(to_first, made, cost)
        for user in users:
            self.differ(to_second, user, math.inf)
            self.differ(user, to_first, math.inf)

    def saved_together(self, things: Iterable[int], cost: float) -> None:
        """Add a cost that applies unless all `things` have label 0."""
        lost = self.thing(0, cost)
        for thing in things:
            self.differ(lost, thing, math.inf)

    def second_label(self) -> list[bool]:
        """Whether each item has label 1 in the minimum-cost assignment; ties get label 0."""
        while (levels := self._bfs_levels())[1] >= 0:
            self._push_blocking_flow(levels)
        reaches = self._reaches_sink()
        return [reaches[node] for node in range(2, len(self._edges))]

    def _add_edge(self, start: int, end: int, cost: float) -> None:
        room = _ENDLESS if math.isinf(cost) else round(cost * _SCALE)
        for node, to, free in ((start, end, room), (end, start, 0)):
            self._edges[node].append(len(self._to))
            self._to.append(to)
            self._room.append(free)

    def _bfs_levels(self) -> list[int]:
        """Distances from the source over edges with free capacity; -1 if unreachable."""
        levels = [-1] * len(self._edges)
        levels[0] = 0
        waiting = deque([0])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                to = self._to[edge]
                if self._room[edge] and levels[to] < 0:
                    levels[to] = levels[node] + 1
                    waiting.append(to)
        return levels

    def _push_blocking_flow(self, levels: list[int]) -> None:
        """Saturate shortest paths until none is left."""
        at = [0] * len(self._edges)
        path: list[int] = []
        node = 0
        while True:
            if node == 1:
                least = min(self._room[e] for e in path)
                for e in path:
                    self._room[e] -= least
                    self._room[e ^ 1] += least
                path, node = [], 0
                continue
            edges = self._edges[node]
            while at[node] < len(edges):
                edge = edges[at[node]]
                to = self._to[edge]
                if self._room[edge] and levels[to] == levels[node] + 1:
                    break
                at[node] += 1
            else:
                if not path:
                    return
                back = path.pop()
                node = self._to[back ^ 1]
                at[node] += 1
                continue
            path.append(edge)
            node = to

    def _reaches_sink(self) -> list[bool]:
        """Whether each vertex can still reach the sink."""
        reaches = [False] * len(self._edges)
        reaches[1] = True
        waiting = deque([1])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                start = self._to[edge]
                if self._room[edge ^ 1] and not reaches[start]:
                    reaches[start] = True
                    waiting.append(start)
        return reaches
