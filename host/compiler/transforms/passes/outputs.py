"""Transposes quantized outputs before they are dequantized: bytes are a quarter of their reals."""

from __future__ import annotations

from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, rewrite


def transpose_bytes(graph: Graph) -> Graph:
    """Exchanges Cast and Transpose before an output. Elsewhere, a transpose of reals may become
    part of a product."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        if not isinstance(node.op, ops.Transpose) or node.outputs[0] not in graph.outputs:
            return None
        cast = users.single(node.inputs[0])
        if cast is None or not isinstance(cast.op, ops.Cast):
            return None
        x, out = graph.tensors[cast.inputs[0] or ""], graph.tensors[node.outputs[0]]
        if x.quant is None or x.quant.per_channel or x.dtype.bytes >= out.dtype.bytes:
            return None
        made = replace(x, name=fresh_name(f"{out.name}.bytes", {*graph.tensors}), shape=out.shape)
        users.made[made.name] = made
        return {
            cast.name: Node(cast.name, node.op, cast.inputs, (made.name,)),
            node.name: Node(node.name, cast.op, (made.name,), node.outputs),
        }

    return rewrite(graph, match)
