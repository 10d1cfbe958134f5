"""Fuses the exporters' variants of x · Φ(x) into one operator."""

from __future__ import annotations

import math

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable

_FACTORS = 3


def fuse_gelu(graph: Graph) -> Graph:
    """Match x · ½ · (1 + erf(x / √2)), with factors in any order."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        factors, gone = _product_factors(users, node)
        half = [f for f in factors if _is_near(users.scalar(f), 0.5)]
        if len(factors) != _FACTORS or len(half) != 1:
            return None
        a, b = (f for f in factors if f != half[0])
        for x, gate in ((a, b), (b, a)):
            inside = _match_erf_gate(users, gate, x)
            if inside:
                made = Node(node.name, ops.Gelu(), (x,), node.outputs)
                return {**dict.fromkeys((n.name for n in (*gone, *inside)), None), node.name: made}
        return None

    return until_stable(graph, match)


def _product_factors(users: Users, node: Node) -> tuple[list[str], list[Node]]:
    """Return the factors of a nested product, or more than three of them, and the nodes of the
    inner products."""
    if not users.is_plain(node, ops.Mul):
        return [], []
    factors, gone, at = [name or "" for name in node.inputs], list[Node](), 0
    while at < len(factors) <= _FACTORS:
        inner = users.single(factors[at])
        if inner is not None and users.is_plain(inner, ops.Mul):
            factors[at : at + 1] = [name or "" for name in inner.inputs]
            gone.append(inner)
        else:
            at += 1
    return factors, gone


def _match_erf_gate(users: Users, name: str, x: str) -> list[Node]:
    """Return the nodes of 1 + erf(x / √2) if they compute `name`."""
    one = users.single(name)
    if one is None or not users.is_plain(one, ops.Add):
        return []
    erf = next((users.single(n) for n in one.inputs if users.scalar(n) is None), None)
    if erf is None or not isinstance(erf.op, ops.Erf):
        return []
    if not any(_is_near(users.scalar(n), 1.0) for n in one.inputs):
        return []
    scaled = users.single(erf.inputs[0])
    if scaled is None or not users.is_plain(scaled, ops.Mul) or x not in scaled.inputs:
        return []
    if not any(_is_near(users.scalar(n), math.sqrt(0.5)) for n in scaled.inputs):
        return []
    return [one, erf, scaled]


def _is_near(found: float | None, value: float) -> bool:
    return found is not None and math.isclose(found, value, rel_tol=1e-6)
