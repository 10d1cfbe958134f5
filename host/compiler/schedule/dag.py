"""The precedence among the nodes of a graph, which are identified by number; key nodes, and the
subgraphs between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph

MERGE_BELOW = 8  # nodes: smaller subgraphs do not warrant a separate C file


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


def key_positions(graph: Graph, dag: Dag) -> list[int]:
    """Nodes that are on every path from the inputs to the outputs, in order.

    With a virtual source before all nodes that read an input or have no predecessor, and a virtual
    sink after all that produce an output or have no successor, these are the dominators of the
    sink, and equally the post-dominators of the source. Since node numbers are a valid order, no
    dominator tree is needed: a node is a dominator if and only if no edge spans it, because a path
    that avoids the node needs such an edge, and such an edge yields a path that avoids it. One pass
    over the edges counts the edges spanning each node.
    """
    size = dag.size
    over = [0] * (size + 2)  # differences; the source is -1, the sink is size

    def edge(start: int, end: int) -> None:
        over[start + 1] += 1
        over[end] -= 1

    inputs, outputs = set(graph.inputs), set(graph.outputs)
    for i, node in enumerate(graph.nodes):
        for end in dag.after[i]:
            edge(i, end)
        if not dag.before[i] or not inputs.isdisjoint(t for t in node.inputs if t):
            edge(-1, i)
        if not dag.after[i] or not outputs.isdisjoint(node.outputs):
            edge(i, size)
    keys, passing = [], 0
    for i in range(size):
        passing += over[i]
        if passing == 0:
            keys.append(i)
    return keys


def subgraph_ends(size: int, keys: Sequence[int], merge_below: int = MERGE_BELOW) -> list[int]:
    """The end of each subgraph (exclusive); the last one ends at `size`.

    A subgraph ends with the next key node, so nothing of the next subgraph can start before it is
    finished. One of fewer than `merge_below` nodes merges into the previous one while that is small
    too, so a chain becomes several subgraphs. If it is still small, it merges into the larger one
    before it, or, if it is the first, into the next.
    """
    ends = [*(k + 1 for k in keys if k + 1 < size), size]
    sizes = [end - start for start, end in itertools.pairwise((0, *ends))]
    grown: list[int] = []
    for nodes in sizes:
        if grown and max(grown[-1], nodes) < merge_below:
            grown[-1] += nodes
        else:
            grown.append(nodes)
    merged: list[int] = []
    for nodes in grown:
        if merged and min(merged[-1], nodes) < merge_below:
            merged[-1] += nodes
        else:
            merged.append(nodes)
    return list(itertools.accumulate(merged))
