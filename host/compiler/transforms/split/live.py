"""What is alive while each node of a graph runs, told from the graph alone."""

from __future__ import annotations

from collections.abc import Collection

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.ir.views import memory_bases


class Live:
    """Bytes of the arena at each node: all that is computed, but for the graph's outputs, which
    are in the caller's memory like its inputs."""

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
        """The peak, and at how many nodes that much is alive."""
        return self.peak, self._at.count(self.peak)

    @property
    def worst(self) -> int:
        """The first node at which most is alive."""
        return self._at.index(self.peak) if self._at else 0

    def last_reader(self, name: str) -> int:
        """The last node that works on a tensor; behind all nodes for an output of the graph."""
        return self._reader[name]

    def beside(self, first: int, end: int, inside: Collection[str]) -> int:
        """Bytes alive at some time from node `first` to `end` (excluded) that are not `inside`."""
        return sum(
            size
            for name, size in self._bytes.items()
            if self._first[name] < end and self._last[name] >= first and name not in inside
        )

    def peak_outside(self, first: int, end: int) -> int:
        """The peak at all other nodes."""
        return max([*self._at[:first], *self._at[end:]], default=0)
