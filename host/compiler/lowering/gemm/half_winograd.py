"""Marks the f16 convolutions that Winograd's transform computes faster, on a board.

Golden outputs then have its rounding, which is two to three times that of direct f16 sums.
"""

from __future__ import annotations

import dataclasses

from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.lowering.context import Spending
from edgekit.host.compiler.lowering.gemm.winograd_memory import allowance, winograd_layer
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.kb.targets.board import BoardProfile


def with_winograd(
    graph: Graph,
    board: BoardProfile,
    table: KnowledgeBase,
    threads: int,
    spending: Spending = "freely",
) -> Graph:
    """`graph` itself if no convolution gains. Those that gain most per byte of their transformed
    weights are marked, as long as `spending` permits."""
    if spending == "none":
        return graph
    nodes = [_marked(graph, node) for node in graph.nodes]
    found = (winograd_layer(graph, node, board, table, threads) for node in nodes if node)
    layers = sorted((x for x in found if x is not None), key=lambda x: -x.gain / max(x.more, 1))
    room = allowance(graph, board, spending) if layers else 0
    marked = set()
    for layer in layers:
        if layer.more <= room:
            room -= layer.more
            marked.add(layer.name)
    if not marked:
        return graph
    pairs = zip(graph.nodes, nodes, strict=True)
    return dataclasses.replace(
        graph, nodes=tuple(new if new and new.name in marked else old for old, new in pairs)
    )


def _marked(graph: Graph, node: Node) -> Node | None:
    """An f16 convolution that is computed by Winograd's transform."""
    if type(node.op) is not Conv2D or graph.tensors[node.outputs[0]].dtype is not DType.F16:
        return None
    return dataclasses.replace(node, op=dataclasses.replace(node.op, winograd=True))
