"""Fuses the exporters' variants of x · relu6(x + 3) / 6 into one operator."""

from __future__ import annotations

import math

from edgekit.host.compiler.ir.ops import Add, Clamp, HardSigmoid, HardSwish, Mul
from edgekit.host.compiler.ir.types import Activation, Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable


def fuse_hard_swish(graph: Graph) -> Graph:
    """Match x · hard_sigmoid(x) and (x · relu6(x + 3)) · (1 / 6)."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        if not users.is_plain(node, Mul):
            return None
        a, b = node.inputs
        for x, gate in ((a, b), (b, a)):
            inside = users.single(gate)
            if inside is None or x is None:
                continue
            if _is_sixth_gate(inside, x):
                return {node.name: Node(node.name, HardSwish(), (x,), node.outputs),
                        inside.name: None}  # fmt: skip
            parts = _match_x_relu6(users, inside) if _is_scalar(users, x, 1 / 6) else None
            if parts is not None:
                source, gone = parts
                fused = Node(node.name, HardSwish(), (source,), node.outputs)
                return {node.name: fused, **dict.fromkeys(gone)}
        return None

    return until_stable(graph, match)


def _is_scalar(users: Users, name: str, value: float) -> bool:
    found = users.scalar(name)
    return found is not None and math.isclose(found, value, rel_tol=1e-6)


def _is_sixth_gate(node: Node, x: str) -> bool:
    op = node.op
    return (
        isinstance(op, HardSigmoid)
        and math.isclose(op.alpha, 1 / 6, rel_tol=1e-6)
        and op.beta == 0.5
        and node.inputs[0] == x
    )


def _match_x_relu6(users: Users, product: Node) -> tuple[str, list[str]] | None:
    """Return x and the nodes of x · relu6(x + 3) if `product` computes that."""
    if not users.is_plain(product, Mul):
        return None
    a, b = product.inputs
    for x, gate in ((a, b), (b, a)):
        clamp = users.single(gate)
        if x is None or clamp is None or not isinstance(clamp.op, Clamp):
            continue
        add = users.single(clamp.inputs[0])
        if clamp.op.activation is not Activation.RELU6 or add is None:
            continue
        if not users.is_plain(add, Add) or x not in add.inputs:
            continue
        other = next((n for n in add.inputs if n != x), None)
        if other is not None and _is_scalar(users, other, 3.0):
            return x, [product.name, clamp.name, add.name]
    return None
