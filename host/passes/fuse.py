"""Fusing neighbors where the result stays exactly what it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from edgekit.host.graph.ops import (
    Add,
    AveragePool2D,
    Clamp,
    Conv2D,
    DepthwiseConv2D,
    FullyConnected,
    MaxPool2D,
    Mul,
    Pad,
    TransposeConv2D,
)
from edgekit.host.graph.types import Activation, DType, Graph, Node, Operator, Padding

_CLAMPABLE = (
    Add, AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, Mul, TransposeConv2D,
)  # fmt: skip


class _Users:
    """Who reads and writes each tensor of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer = graph.producer()
        self._consumers = graph.consumers()

    def only_consumer(self, tensor: str) -> Node | None:
        """The single reader of a tensor that is no graph output."""
        users = self._consumers[tensor]
        if len(users) != 1 or tensor in self.graph.outputs:
            return None
        return users[0]


def _rewrite(graph: Graph, match: Callable[[_Users, Node], dict[str, Node | None] | None]) -> Graph:
    """Applies `match` to each node of the original graph once.

    It returns new nodes by the name of the node they replace (None removes), or None. A node that
    was already replaced is not matched again in this round.
    """
    users = _Users(graph)
    changed: dict[str, Node | None] = {}
    for node in graph.nodes:
        if node.name in changed:
            continue
        found = match(users, node)
        if found is not None and not found.keys() & changed.keys():
            changed |= found
    if not changed:
        return graph
    nodes = (changed.get(n.name, n) for n in graph.nodes)
    kept = tuple(n for n in nodes if n is not None)
    used = {t for n in kept for t in (*n.inputs, *n.outputs) if t is not None}
    used |= {*graph.inputs, *graph.outputs}
    tensors = {name: t for name, t in graph.tensors.items() if name in used}
    return dataclasses.replace(graph, nodes=kept, tensors=tensors)


def _until_stable(
    graph: Graph, match: Callable[[_Users, Node], dict[str, Node | None] | None]
) -> Graph:
    while True:
        after = _rewrite(graph, match)
        if after is graph:
            return graph
        graph = after


def fuse_activation(graph: Graph) -> Graph:
    """f32 operator, then a clamp of its only use → the operator clamps."""

    def match(users: _Users, node: Node) -> dict[str, Node | None] | None:
        op = node.op
        if not isinstance(op, _CLAMPABLE) or op.activation is not Activation.NONE:
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

    return _until_stable(graph, match)


def fuse_pad(graph: Graph) -> Graph:
    """Zero rows and columns before a convolution → the convolution's own padding."""

    def match(users: _Users, node: Node) -> dict[str, Node | None] | None:
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

    return _until_stable(graph, match)


def fuse_residual(graph: Graph) -> Graph:
    """f32 convolution, then the addition of an equal shape → the convolution adds it.

    The fused node stands where the addition stood, so that both operands are ready.
    """

    def match(users: _Users, node: Node) -> dict[str, Node | None] | None:
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

    return _until_stable(graph, match)


def _takes_residual(users: _Users, conv: Node, other: str) -> bool:
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
