"""Constant folding: replaces nodes with known results by constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import is_foldable, run_node
from edgekit.host.compiler.ir.types import Array, Graph, Node, Tensor


def fold(graph: Graph) -> Graph:
    """Evaluate nodes whose inputs are all constant.

    Unused constants remain until `dead` removes them. A sparse constant stays marked as sparse only
    through casts. Nodes that would be slow to evaluate (a huge convolution of constants) stay.
    """
    tensors = dict(graph.tensors)
    values: dict[str, Array] = {n: t.data for n, t in tensors.items() if t.data is not None}
    nodes: list[Node] = []
    for node in graph.nodes:
        if not _is_foldable(node, tensors):
            nodes.append(node)
            continue
        results = run_node(node, tensors, values)
        sparse = isinstance(node.op, ops.Cast) and any(tensors[n].sparse for n in node.inputs if n)
        for name, value in zip(node.outputs, results, strict=True):
            tensors[name] = replace(tensors[name], data=value, sparse=sparse)
            values[name] = value
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def _is_foldable(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    ins = [tensors[n] for n in node.inputs if n is not None]
    return is_foldable(node.op, ins, [tensors[n] for n in node.outputs])
