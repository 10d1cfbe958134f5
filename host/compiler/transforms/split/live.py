"""Live bytes while each node of a graph runs, derived from the graph alone."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.ir.views import memory_bases


class Live:
    """Live arena bytes at each node: all computed tensors except graph outputs, which, like the
    inputs, are in the caller's memory."""

    def __init__(self, graph: Graph) -> None:
        self._tensors = graph.tensors
        self._place = {node.name: i for i, node in enumerate(graph.nodes)}
        self._base = base = memory_bases(graph)
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
        spans = ((self._first[k], self._last[k] + 1, size) for k, size in self._bytes.items())
        self._at = _sums(spans, len(graph.nodes))

    @property
    def peak(self) -> int:
        return max(self._at, default=0)

    def bytes_at(self, index: int) -> int:
        """Live bytes while a node runs."""
        return self._at[index]

    @property
    def summit(self) -> tuple[int, int]:
        """The peak, and the number of nodes that reach it."""
        return self.peak, self._at.count(self.peak)

    @property
    def worst(self) -> int:
        """Index of the first node that reaches the peak."""
        return self._at.index(self.peak) if self._at else 0

    def alive_at(self, index: int) -> list[str]:
        """Tensors with memory of their own that are alive while a node runs."""
        return [t for t in self._bytes if self._first[t] <= index <= self._last[t]]

    def peak_if_joined(self, joined: Iterable[Sequence[Node]]) -> int:
        """An upper bound of the peak if each sequence of nodes becomes one node at the place of its
        last.

        Each node of a sequence is the only reader of the previous one's output, which disappears;
        what the others read lives until the last. An output inside a concatenation may leave it.
        """
        spans: list[tuple[int, int, int]] = []
        for nodes in joined:
            images = {t for node in nodes[:-1] for t in node.outputs} & self._bytes.keys()
            spans += [(self._first[t], self._last[t] + 1, -self._bytes[t]) for t in images]
            read = {self._base.get(t or "", "") for node in nodes for t in node.inputs}
            end = self._place[nodes[-1].name] + 1
            for name in (read - images) & self._bytes.keys():
                spans.append((min(self._last[name] + 1, end), end, self._bytes[name]))
            inside = [t for t in nodes[-1].outputs if self._base.get(t, t) != t]
            spans += [(0, len(self._at), self._tensors[t].bytes) for t in inside]
        more = _sums(spans, len(self._at))
        return max((a + b for a, b in zip(self._at, more, strict=True)), default=0)

    def bytes_of_view(self, name: str) -> int:
        """Bytes of a tensor in another's memory that needs its own if that one disappears; else
        0."""
        leaves = self._base.get(name, name) != name and self._reader[name] < len(self._at)
        return self._tensors[name].bytes if leaves else 0

    def last_reader(self, name: str) -> int:
        """Index of the last node that uses a tensor; past the end for a graph output."""
        return self._reader[name]

    def around(self, first: int, end: int, inside: Collection[str]) -> int:
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


def _sums(spans: Iterable[tuple[int, int, int]], nodes: int) -> list[int]:
    """Sum at each of `nodes` nodes of the values of (first node, end, value) that contain it."""
    changes = [0] * (nodes + 1)
    for first, end, value in spans:
        changes[first] += value
        changes[end] -= value
    return list(itertools.accumulate(changes[:-1]))
