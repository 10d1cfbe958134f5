"""Marks the f16 convolutions that Winograd's transform computes faster, on a board.

Golden outputs then have its rounding, which is two to three times that of direct f16 sums.
"""

from __future__ import annotations

import dataclasses

from edgekit.host.compiler.costs.methods.winograd import transformed_bytes
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.lowering.choice import choose
from edgekit.host.compiler.lowering.common.window import window_of
from edgekit.host.compiler.lowering.gemm.product_f32 import float_form
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.kb.targets.board import BoardProfile


def with_winograd(graph: Graph, board: BoardProfile, table: KnowledgeBase, threads: int) -> Graph:
    """`graph` itself if no convolution gains."""
    nodes = tuple(_marked(graph, node, board, table, threads) for node in graph.nodes)
    return graph if nodes == graph.nodes else dataclasses.replace(graph, nodes=nodes)


def winograd_note(graph: Graph) -> str:
    """Describes the weights of the marked convolutions; empty if there are none."""
    marked = [n for n in graph.nodes if isinstance(n.op, Conv2D) and n.op.winograd]
    weights = [graph.tensors[n.inputs[1] or ""] for n in marked]
    if not marked:
        return ""
    made = sum(transformed_bytes(w.shape[3], w.shape[0], "f16") for w in weights)
    layers = "1 convolution" if len(marked) == 1 else f"{len(marked)} convolutions"
    return (
        f"Winograd's transform: the weights of {layers} take {made:,} bytes on the board instead "
        f"of {sum(w.bytes for w in weights):,}"
    )


def _marked(
    graph: Graph, node: Node, board: BoardProfile, table: KnowledgeBase, threads: int
) -> Node:
    if type(node.op) is not Conv2D:
        return node
    x, w, y = (graph.tensors[name or ""] for name in (*node.inputs[:2], node.outputs[0]))
    if y.dtype is not DType.F16 or w.data is None:
        return node
    marked = dataclasses.replace(node, op=dataclasses.replace(node.op, winograd=True))
    weights = w.data.reshape(len(w.data), -1)
    form = float_form(marked, window_of(node.op, x, w, y), weights, DType.F16)
    found = choose(table, board, board.isa.of_half, form, threads)
    return marked if found is not None and found[0].family == "winograd" else node
