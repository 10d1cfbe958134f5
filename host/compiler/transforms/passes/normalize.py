"""Fuses the exporters' variants of layer normalization into one operator."""

from __future__ import annotations

import math

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable


def fuse_layer_norm(graph: Graph) -> Graph:
    """Match (x - mean) / sqrt(variance + epsilon) over the last axes, including a following
    constant factor and shift per value of a row."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        if isinstance(node.op, ops.LayerNorm):
            return _with_term(users, node)
        return _fuse_chain(users, node)

    return until_stable(graph, match)


def _fuse_chain(users: Users, node: Node) -> dict[str, Node | None] | None:
    """Fuse the chain that ends in `node`, a quotient or a product with the inverse."""
    root, gone = _match_sqrt(users, node)
    centered = users.producer.get(node.inputs[0] or "") if root else None
    if root is None or centered is None or not isinstance(centered.op, ops.Sub):
        return None
    shifted = users.single(root.inputs[0])
    found = _plus_scalar(users, shifted)
    if shifted is None or found is None:
        return None
    variance, epsilon = found
    x, mean = centered.inputs
    squares, count, variance_nodes = _mean_of(users, variance)
    source, same_count, mean_nodes = _mean_of(users, mean)
    square = users.single(squares)
    if square is None or not count or count != same_count or source != x or x is None:
        return None
    if not users.is_plain(square, ops.Mul) or set(square.inputs) != {centered.outputs[0]}:
        return None
    if not users.only_for(centered.outputs[0], (square, node)):
        return None
    made = Node(node.name, ops.LayerNorm(count, epsilon), (x, None, None), node.outputs)
    within = (*gone, shifted, *variance_nodes, square, centered, *mean_nodes)
    return {**dict.fromkeys((n.name for n in within), None), node.name: made}


def _match_sqrt(users: Users, node: Node) -> tuple[Node | None, list[Node]]:
    """Return the square root that `node` divides by, and the nodes from there on."""
    if isinstance(node.op, ops.Div):
        below = users.single(node.inputs[1])
        gone = [] if below is None else [below]
    elif users.is_plain(node, ops.Mul):
        inverse = users.single(node.inputs[1])
        if inverse is None or not isinstance(inverse.op, ops.Reciprocal):
            return None, []
        below = users.single(inverse.inputs[0])
        gone = [inverse] if below is None else [inverse, below]
    else:
        return None, []
    return (below, gone) if below and isinstance(below.op, ops.Sqrt) else (None, [])


def _plus_scalar(users: Users, node: Node | None) -> tuple[str | None, float] | None:
    if node is None or not users.is_plain(node, ops.Add):
        return None
    for a, b in (node.inputs, node.inputs[::-1]):
        epsilon = users.scalar(b)
        if epsilon is not None and epsilon >= 0:
            return a, epsilon
    return None


def _mean_of(users: Users, name: str | None) -> tuple[str | None, int, list[Node]]:
    """Return the input that `name` is the mean of, the number of last axes, and the nodes."""
    node, factor = users.single(name), None
    nodes = [] if node is None else [node]
    if node is not None and users.is_plain(node, ops.Mul):
        factor = users.scalar(node.inputs[1])
        node = users.single(node.inputs[0])
        nodes += [] if node is None else [node]
    if node is None or not isinstance(node.op, ops.Mean | ops.ReduceSum) or not node.op.keep_dims:
        return None, 0, []
    shape = users.graph.tensors[node.inputs[0] or ""].shape
    axes = sorted(node.op.axes)
    size = math.prod(shape[a] for a in axes)
    expected = None if isinstance(node.op, ops.Mean) else 1 / size
    is_last = axes == list(range(len(shape) - len(axes), len(shape)))
    if not is_last or (factor is None) != (expected is None):
        return None, 0, []
    if factor is not None and not math.isclose(factor, expected or 0, rel_tol=1e-6):
        return None, 0, []
    return node.inputs[0], len(axes), nodes


def _with_term(users: Users, node: Node) -> dict[str, Node | None] | None:
    """Fuse the factor or shift of the node's only reader."""
    after = users.only_consumer(node.outputs[0])
    given = (*node.inputs, None, None)[:3]  # factor and shift may be left out
    if after is None or given[2] is not None:
        return None
    index = 1 if users.is_plain(after, ops.Mul) else 2 if users.is_plain(after, ops.Add) else 0
    if not index or given[index] is not None:
        return None
    y = users.graph.tensors[node.outputs[0]]
    assert isinstance(node.op, ops.LayerNorm)
    row = y.shape[-node.op.axes :]
    for name in after.inputs:
        term = users.graph.tensors[name or ""]
        wide = (1,) * (len(y.shape) - len(term.shape)) + term.shape
        is_row = wide == (1,) * (len(y.shape) - len(row)) + row
        if name != node.outputs[0] and term.data is not None and is_row:
            inputs = (*given[:index], name, *given[index + 1 :])
            fused = Node(after.name, node.op, inputs, after.outputs)
            return {node.name: None, after.name: fused}
    return None
