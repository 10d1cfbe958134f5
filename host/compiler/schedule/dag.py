"""The precedence among the nodes of a graph, which are identified by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph


@dataclass(frozen=True)
class Dag:
    """Node i must run after all of `before[i]` and before all of `after[i]`.

    Numbers are positions in the graph's node list, so 0, 1, 2, … is a valid order.
    """

    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return len(self.before)

    @staticmethod
    def of_edges(size: int, edges: Sequence[tuple[int, int]]) -> Dag:
        """Builds a Dag from edges (from, to) with from < to; duplicates are ignored."""
        before: list[dict[int, None]] = [{} for _ in range(size)]
        after: list[dict[int, None]] = [{} for _ in range(size)]
        for start, end in edges:
            before[end][start] = None
            after[start][end] = None
        return Dag(tuple(tuple(b) for b in before), tuple(tuple(a) for a in after))

    def part(self, nodes: Sequence[int]) -> Dag:
        """The precedence among some nodes, renumbered in the given order."""
        place = {node: i for i, node in enumerate(nodes)}
        edges = [
            (place[start], place[end])
            for end in nodes
            for start in self.before[end]
            if start in place
        ]
        return Dag.of_edges(len(nodes), edges)


def dag_of(graph: Graph) -> Dag:
    """Data dependencies, and the order of all accesses to the same state."""
    made = {t: i for i, node in enumerate(graph.nodes) for t in node.outputs}
    touched: dict[str, int] = {}
    edges = []
    for i, node in enumerate(graph.nodes):
        edges += [(made[t], i) for t in node.inputs if t in made]
        if isinstance(node.op, ops.ReadState | ops.WriteState):
            if node.op.state in touched:
                edges.append((touched[node.op.state], i))
            touched[node.op.state] = i
    return Dag.of_edges(len(graph.nodes), edges)
