"""Key nodes of a graph, and the subgraphs between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.schedule.dag import Dag

MERGE_BELOW = 8  # nodes: smaller subgraphs do not warrant a separate C file


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
