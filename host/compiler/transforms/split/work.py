"""The work of an operator, as far as splitting compares it."""

from __future__ import annotations

from edgekit.host.compiler.ir.types import Graph, Node

CALL = 50_000.0  # cost of starting an operator, in multiplications


def count_operations(graph: Graph, node: Node) -> float:
    """Number of multiplications, or of elements if there are none."""
    out = graph.tensors[node.outputs[0]]
    weights = graph.tensors[node.inputs[1]] if len(node.inputs) > 1 and node.inputs[1] else None
    if weights is None or weights.data is None or len(weights.shape) != 4:
        return float(out.elements)
    return float(out.elements) * weights.elements / out.shape[3]
