"""Key nodes of a graph, and the subgraphs between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.schedule.dag import Dag

MERGE_BELOW = 8  # nodes: a smaller subgraph is not worth a C file of its own


def key_positions(graph: Graph, dag: Dag) -> list[int]:
    """Nodes that lie on every path from the inputs to the outputs, in order.

    With a virtual source before all that reads an input or waits for nothing, and a virtual sink
    after all that makes an output or is waited for by nothing, these are the dominators of the
    sink, which are the post-dominators of the source. In a graph whose numbers are a valid order
    they need no dominator tree: a node is one of them if no edge passes over it, for a path that
    leaves it out needs such an edge, and such an edge makes a path that leaves it out. One pass
    over the edges counts the edges over each node.
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

    A subgraph reaches to the next key node, which is its last node, so that nothing of the next
    subgraph can start before it is done. One of fewer than `merge_below` nodes merges into the
    one before it while that is small as well, so that a chain becomes several subgraphs; what is
    small even then merges into the larger one before it, and the first into the one after it.
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
