"""Live bytes while each node of a graph runs, derived from the graph alone."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.ir.views import memory_bases


class Live:
    """Live arena bytes at each node: all computed tensors except graph outputs, which, like the
    inputs, are in the caller's memory."""

    def __init__(self, graph: Graph) -> None:
        base = memory_bases(graph)
        outside = {base[t] for t in (*graph.inputs, *graph.outputs) if t in base}
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._reader: dict[str, int] = {}
        for i, node in enumerate(graph.nodes):
            for name in (*node.inputs, *node.outputs):
                if name is None or name not in base:
                    continue
                self._reader[name] = i
                if base[name] not in outside:
                    self._first.setdefault(base[name], i)
                    self._last[base[name]] = i
        for name in graph.outputs:
            self._reader[name] = len(graph.nodes)
        self._bytes = {name: graph.tensors[name].bytes for name in self._first}
        self._at = [0] * len(graph.nodes)
        for name, size in self._bytes.items():
            for i in range(self._first[name], self._last[name] + 1):
                self._at[i] += size

    @property
    def peak(self) -> int:
        return max(self._at, default=0)

    @property
    def summit(self) -> tuple[int, int]:
        """The peak, and the number of nodes that reach it."""
        return self.peak, self._at.count(self.peak)

    @property
    def worst(self) -> int:
        """Index of the first node that reaches the peak."""
        return self._at.index(self.peak) if self._at else 0

    def last_reader(self, name: str) -> int:
        """Index of the last node that uses a tensor; past the end for a graph output."""
        return self._reader[name]

    def beside(self, first: int, end: int, inside: Collection[str]) -> int:
        """Bytes live at any time from node `first` to `end` (excluded), without `inside`."""
        return sum(
            size
            for name, size in self._bytes.items()
            if self._first[name] < end and self._last[name] >= first and name not in inside
        )

    def peak_outside(self, first: int, end: int) -> int:
        """Peak over all other nodes."""
        return max([*self._at[:first], *self._at[end:]], default=0)

    def above(self, limit: int, first: int, end: int) -> int:
        """The number of nodes next to those from `first` to `end` (excluded), without a gap, that
        need more than `limit`."""
        before = itertools.takewhile(lambda size: size > limit, reversed(self._at[:first]))
        after = itertools.takewhile(lambda size: size > limit, self._at[end:])
        return sum(1 for _ in itertools.chain(before, after))
