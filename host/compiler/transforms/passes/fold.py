"""Constant folding: replaces nodes with known results by constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import COMPUTED_BYTES, is_foldable, run_node
from edgekit.host.compiler.ir.types import Array, Graph, Node, Tensor

_COMPUTED_GROWTH = 4  # of new constants, as a multiple of those in the file


def fold(graph: Graph) -> Graph:
    """Evaluate nodes whose inputs are all constant.

    Constants that only folded nodes read are removed. A sparse constant stays marked as sparse only
    through casts. Nodes that would be slow to evaluate (a huge convolution of constants) stay, and
    so do nodes whose results are out of proportion to the constants in the model's file: those that
    an importer computed must not justify others.
    """
    tensors = dict(graph.tensors)
    values: dict[str, Array] = {n: t.data for n, t in tensors.items() if t.data is not None}
    held, given = sum(v.nbytes for v in values.values()), graph.given_bytes
    most = given + max(COMPUTED_BYTES, _COMPUTED_GROWTH * given)
    readers = Counter([*(n for node in graph.nodes for n in node.inputs if n), *graph.outputs])
    nodes: list[Node] = []
    for node in graph.nodes:
        made = sum(tensors[n].elements * tensors[n].dtype.bytes for n in node.outputs)
        if held + made > most or not _is_foldable(node, tensors):
            nodes.append(node)
            continue
        results = run_node(node, tensors, values)
        sparse = isinstance(node.op, ops.Cast) and any(tensors[n].sparse for n in node.inputs if n)
        for name, value in zip(node.outputs, results, strict=True):
            tensors[name] = replace(tensors[name], data=value, sparse=sparse)
            values[name] = value
        readers.subtract(n for n in node.inputs if n)
        unread = {n for n in node.inputs if n and not readers[n]}
        held += made - sum(values.pop(n).nbytes for n in unread)
        for name in unread:
            del tensors[name]
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def _is_foldable(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    ins = [tensors[n] for n in node.inputs if n is not None]
    return is_foldable(node.op, ins, [tensors[n] for n in node.outputs])
