"""Folds per-channel factors and shifts after a convolution into its weights and bias.

These remain of a batch normalization at inference. They stay where folding them would round sums
that can be exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir.exact import can_be_exact, is_power_of_two, rows_of
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.ops import Add, Mul, Weighted
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.transforms.passes.rewrite import Users, until_stable


def fuse_affine(graph: Graph) -> Graph:
    """Fold a constant factor or addend per output channel into an f32 product's constants."""

    def match(users: Users, node: Node) -> dict[str, Node | None] | None:
        weights = _unfused_weights(users, node)
        if weights is None:
            return None
        after = users.only_consumer(node.outputs[0])
        if after is None or not isinstance(after.op, Add | Mul):
            return None
        if after.op.activation is not Activation.NONE:
            return None
        term = _per_channel(users, node, after)
        if term is None:
            return None
        inputs = _fold_term(users, node, weights, term, isinstance(after.op, Mul))
        if inputs is None:
            return None
        fused = dataclasses.replace(node, inputs=inputs, outputs=after.outputs)
        return {node.name: fused, after.name: None}

    return until_stable(graph, match)


def split_bias(graph: Graph) -> Graph:
    """Add a bias after the sum where kernels, which begin with it, would round a sum that can be
    exact."""
    nodes: list[Node] = []
    tensors, names = dict(graph.tensors), {*graph.tensors, *(n.name for n in graph.nodes)}
    for node in graph.nodes:
        bias = node.inputs[2] if isinstance(node.op, Weighted) and len(node.inputs) == 3 else None
        rows = _rows_of_weights(node, tensors) if bias else None
        data = tensors[bias].data if bias else None
        if rows is None or data is None or not can_be_exact(rows) or can_be_exact(rows, data):
            nodes.append(node)
            continue
        assert isinstance(node.op, Weighted)
        made = node.outputs[0]
        total = fresh_name(f"{made}.sum", names)
        tensors[total] = dataclasses.replace(tensors[made], name=total)
        plain = dataclasses.replace(node.op, activation=Activation.NONE)
        nodes.append(Node(node.name, plain, (*node.inputs[:2], None), (total,)))
        add = Add(node.op.activation)
        nodes.append(Node(fresh_name(f"{node.name}.bias", names), add, (total, bias), (made,)))
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors)


def _rows_of_weights(node: Node, tensors: Mapping[str, Tensor]) -> Array | None:
    """The constant f32 weights of a product, [output channels, weights of a channel]."""
    weights = tensors[node.inputs[1] or ""]
    if weights.data is None or weights.dtype is not DType.F32:
        return None
    return rows_of(node.op, weights.data)


def _unfused_weights(users: Users, node: Node) -> Tensor | None:
    """The constant f32 weights of a product into which nothing has been fused yet."""
    if not isinstance(node.op, Weighted) or node.op.activation is not Activation.NONE:
        return None
    if len(node.inputs) > 3 or any(n is None for n in node.inputs[:2]):
        return None
    weights = users.graph.tensors[node.inputs[1] or ""]
    bias = users.graph.tensors[node.inputs[2]] if node.inputs[2:] and node.inputs[2] else None
    fixed = weights.data is not None and (bias is None or bias.data is not None)
    return weights if fixed and weights.dtype is DType.F32 else None


def _per_channel(users: Users, node: Node, after: Node) -> Array | None:
    """The constant operand of `after`, one value per channel of the node's output, or None."""
    tensors = users.graph.tensors
    y = tensors[node.outputs[0]]
    others = [n for n in after.inputs if n != node.outputs[0]]
    if len(others) != 1 or tensors[after.outputs[0]].shape != y.shape or y.dtype is not DType.F32:
        return None
    term = tensors[others[0] or ""]
    if term.data is None:
        return None
    if term.elements == 1:
        return np.full(y.shape[-1], term.data.reshape(-1)[0], np.float32)
    if term.elements == y.shape[-1] == term.shape[-1]:
        return term.data.reshape(-1)
    return None


def _fold_term(
    users: Users, node: Node, weights: Tensor, term: Array, is_factor: bool
) -> tuple[str | None, ...] | None:
    """Return the node's inputs with the term folded into its weights or bias; None where sums that
    can be exact would be rounded."""
    rows = _rows_of_weights(node, users.graph.tensors)
    assert weights.data is not None and rows is not None
    exact = can_be_exact(rows)
    if exact and is_factor and not is_power_of_two(term):
        return None
    stem = node.inputs[2] if node.inputs[2:] and node.inputs[2] else None
    bias = users.graph.tensors[stem].data if stem else None
    name = node.inputs[1]
    if is_factor:
        shape = [-1 if axis == node.op.weight_axis else 1 for axis in range(len(weights.shape))]
        scaled = (weights.data * term.reshape(shape)).astype(np.float32)
        name = users.constant(f"{weights.name}.scaled", weights, scaled)
        bias = None if bias is None else (bias * term).astype(np.float32)
    else:
        bias = term if bias is None else (bias + term).astype(np.float32)
        if exact and not can_be_exact(rows, bias):
            return None
    like = Tensor("", term.shape, DType.F32)
    moved = None if bias is None else users.constant(f"{node.name}.bias", like, bias)
    return (node.inputs[0], name, moved)
