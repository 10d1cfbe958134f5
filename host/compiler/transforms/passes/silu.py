"""Fuses x · σ(x) and x · σ(α · x) into one operator."""

from __future__ import annotations

from edgekit.host.compiler.ir.ops import Logistic, Mul, Silu
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable


def fuse_silu(graph: Graph) -> Graph:
    """Fuse x · sigmoid(x) in f32 only: quantized graphs round in between."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        if not users.is_plain(node, Mul):
            return None
        a, b = node.inputs
        for x, gate in ((a, b), (b, a)):
            logistic = users.single(gate)
            if logistic is None or not isinstance(logistic.op, Logistic):
                continue
            inside = logistic.inputs[0]
            if inside == x:
                return _fuse_silu(node, x, 1.0, [logistic])
            factor = _match_factor(users, inside, x)
            if factor is not None:
                scaling = users.producer[inside or ""]
                return _fuse_silu(node, x, factor, [logistic, scaling])
        return None

    return until_stable(graph, match)


def _fuse_silu(node: Node, x: str | None, alpha: float, gone: list[Node]) -> dict[str, Node | None]:
    made = Node(node.name, Silu(alpha), (x,), node.outputs)
    return {node.name: made, **dict.fromkeys(n.name for n in gone)}


def _match_factor(users: Users, product: str | None, x: str | None) -> float | None:
    """Return α if `product` is α · x and has no other reader."""
    node = users.single(product)
    if node is None or not users.is_plain(node, Mul) or x not in node.inputs:
        return None
    others = [name for name in node.inputs if name != x]
    return users.scalar(others[0]) if len(others) == 1 else None
