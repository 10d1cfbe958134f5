"""Fuses neighboring operators where the result stays bit-exact."""

from __future__ import annotations

import dataclasses

from edgekit.host.compiler.ir.ops import (
    Activated,
    Add,
    Clamp,
    Conv2D,
    DepthwiseConv2D,
    Pad,
    StridedSlice,
)
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Operator, Padding
from edgekit.host.compiler.ir.windows import span
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable


def fuse_activation(graph: Graph) -> Graph:
    """Fuse a clamp into the f32 operator whose output only it reads."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        op = node.op
        if not isinstance(op, Activated) or op.activation is not Activation.NONE:
            return None
        clamp = users.only_consumer(node.outputs[0])
        if clamp is None or not isinstance(clamp.op, Clamp):
            return None
        if graph.tensors[clamp.outputs[0]].dtype is not DType.F32:
            return None
        fused: Operator = dataclasses.replace(op, activation=clamp.op.activation)
        return {
            node.name: dataclasses.replace(node, op=fused, outputs=clamp.outputs),
            clamp.name: None,
        }

    return until_stable(graph, match)


def fuse_pad(graph: Graph) -> Graph:
    """Fuse zero rows and columns before a convolution into its padding."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        op = node.op
        if not isinstance(op, Pad) or len(op.before) != 4:
            return None
        if any((op.before[0], op.before[3], op.after[0], op.after[3])):
            return None
        conv = users.only_consumer(node.outputs[0])
        if conv is None or not isinstance(conv.op, Conv2D | DepthwiseConv2D):
            return None
        if conv.inputs[0] != node.outputs[0] or node.outputs[0] in conv.inputs[1:]:
            return None
        own = conv.op.padding
        padding = Padding(
            own.top + op.before[1],
            own.bottom + op.after[1],
            own.left + op.before[2],
            own.right + op.after[2],
        )
        fused = dataclasses.replace(conv.op, padding=padding)
        return {
            conv.name: dataclasses.replace(
                conv, op=fused, inputs=(node.inputs[0], *conv.inputs[1:])
            ),
            node.name: None,
        }

    return until_stable(graph, match)


def fuse_slice(graph: Graph) -> Graph:
    """Do not compute rows and columns that a slice drops, such as those of causal convolutions
    with padding on both sides."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        op = node.op
        if not isinstance(op, Conv2D | DepthwiseConv2D) or len(node.inputs) > 3:
            return None
        cut = users.only_consumer(node.outputs[0])
        if cut is None or not isinstance(cut.op, StridedSlice):
            return None
        out, kept = graph.tensors[node.outputs[0]], graph.tensors[cut.outputs[0]]
        same = (out.shape[0], out.shape[3]) == (kept.shape[0], kept.shape[-1])
        if cut.op.shape != cut.op.extent or {*cut.op.stride} != {1} or not same:
            return None
        x, w = (graph.tensors[name or ""] for name in node.inputs[:2])
        spans = span((w.shape[1], w.shape[2]), op.dilation)
        pads = []
        for axis in (1, 2):
            before = (op.padding.top, op.padding.left)[axis - 1]
            step, count = op.stride[axis - 1], cut.op.extent[axis]
            begin = before - cut.op.begin[axis] * step
            end = (count - 1) * step + spans[axis - 1] - x.shape[axis] - begin
            if begin < 0 or end < 0:
                return None
            pads += [begin, end]
        fused = dataclasses.replace(op, padding=Padding(*pads))
        return {
            node.name: dataclasses.replace(node, op=fused, outputs=cut.outputs),
            cut.name: None,
        }

    return until_stable(graph, match)


def fuse_residual(graph: Graph) -> Graph:
    """Fuse the addition of a tensor of equal shape into the preceding f32 convolution.

    The fused node replaces the addition, where both operands are available.
    """

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        op = node.op
        if not isinstance(op, Add):
            return None
        a, b = node.inputs[0], node.inputs[1]
        for mine, other in ((a, b), (b, a)):
            if mine is None or other is None or mine == other:
                continue
            conv = users.producer.get(mine)
            if conv is None or not _takes_residual(users, conv, other):
                continue
            bias = conv.inputs[2] if len(conv.inputs) > 2 else None
            assert isinstance(conv.op, Conv2D)
            fused = Node(
                conv.name,
                dataclasses.replace(conv.op, activation=op.activation),
                (conv.inputs[0], conv.inputs[1], bias, other),
                node.outputs,
            )
            return {node.name: fused, conv.name: None}
        return None

    return until_stable(graph, match)


def _takes_residual(users: Users, conv: Node, other: str) -> bool:
    graph = users.graph
    tensors = graph.tensors
    if not isinstance(conv.op, Conv2D) or conv.op.activation is not Activation.NONE:
        return False
    if len(conv.inputs) > 3 or users.only_consumer(conv.outputs[0]) is None:
        return False
    weights = tensors[conv.inputs[1] or ""]
    return (
        tensors[other].dtype is DType.F32
        and weights.dtype is DType.F32
        and tensors[other].data is None
        and tensors[other].shape == tensors[conv.outputs[0]].shape
    )
