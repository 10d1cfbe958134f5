"""Hard-swish behind a convolution becomes part of its kernel (device/kernels/conv/gate.h).

It comes last, when it is known which convolutions remain ordinary ones: those of channel-major
images, pruned weights or products of bytes have kernels without it.
"""

from __future__ import annotations

import dataclasses

from edgekit.host.graph import ops
from edgekit.host.graph.types import Activation, DType, Graph, Node
from edgekit.host.passes.rewrite import Users, rewrite


def fuse_gates(graph: Graph) -> Graph:
    """f32 convolutions, depthwise ones too, with HardSwish as their only reader."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        after = users.only_consumer(node.outputs[0]) if _takes_gate(graph, node) else None
        if after is None or not isinstance(after.op, ops.HardSwish):
            return None
        assert isinstance(node.op, ops.Conv2D | ops.DepthwiseConv2D)
        gated = dataclasses.replace(node.op, hard_swish=True)
        return {
            node.name: dataclasses.replace(node, op=gated, outputs=after.outputs),
            after.name: None,
        }

    return rewrite(graph, match)


def _takes_gate(graph: Graph, node: Node) -> bool:
    if type(node.op) not in (ops.Conv2D, ops.DepthwiseConv2D):
        return False
    assert isinstance(node.op, ops.Conv2D | ops.DepthwiseConv2D)
    x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
    is_f32 = x.dtype is w.dtype is DType.F32
    return is_f32 and node.op.activation is Activation.NONE and not node.op.hard_swish


def gate_of(node: Node) -> tuple[dict[str, int], str]:
    """The macros of a kernel that gates its results, and what sets its name apart."""
    op = node.op
    gated = isinstance(op, ops.Conv2D | ops.DepthwiseConv2D) and op.hard_swish
    return ({"HARD_SWISH": 1}, "_gated") if gated else ({}, "")
