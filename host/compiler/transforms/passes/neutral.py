"""Removes products with 1 and sums with 0, such as torch's exports of group normalization have, and
reshapes to the same shape, which pairs of DequantizeLinear and QuantizeLinear become."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Quant


def drop_neutral(graph: Graph) -> Graph:
    """Readers of the result read the other operand. -0 + 0 stays -0, as in ONNX Runtime."""
    same: dict[str | None, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        source = _unchanged(graph, node)
        if source is None:
            nodes.append(node)
        else:
            same[node.outputs[0]] = source
    return replace(graph, nodes=tuple(nodes)) if same else graph


def _unchanged(graph: Graph, node: Node) -> str | None:
    """The operand that a node only copies."""
    op, neutral = node.op, 1.0
    if isinstance(op, ops.Reshape):
        return _same_tensor(graph, node)
    if isinstance(op, ops.Add):
        neutral = 0.0
    elif not isinstance(op, ops.Mul):
        return None
    out = graph.tensors[node.outputs[0]]
    if op.activation is not Activation.NONE or out.dtype is not DType.F32:
        return None
    if out.name in graph.outputs:
        return None
    for name, other in (node.inputs, node.inputs[::-1]):
        data = graph.tensors[other or ""].data
        if data is None or not np.all(data == neutral) or name is None:
            continue
        if graph.tensors[name].shape == out.shape and graph.tensors[name].data is None:
            return name
    return None


def _same_tensor(graph: Graph, node: Node) -> str | None:
    """The input of a reshape, if it has the shape and the quantization of the output: its producer
    can then write it into a concatenation that reads the output."""
    x, out = graph.tensors[node.inputs[0] or ""], graph.tensors[node.outputs[0]]
    alike = (x.shape, x.dtype) == (out.shape, out.dtype) and _same_quant(x.quant, out.quant)
    return x.name if alike and x.data is None and out.name not in graph.outputs else None


def _same_quant(a: Quant | None, b: Quant | None) -> bool:
    if a is None or b is None:
        return a is b
    values = np.array_equal(a.scale, b.scale) and np.array_equal(a.zero_point, b.zero_point)
    flags = (a.axis, a.rounds_once, a.from_u8) == (b.axis, b.rounds_once, b.from_u8)
    return bool(values and flags)
