"""Divides means of images into rows and the rest, so that bands keep the image from existing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Quant, Tensor

_QUANTIZED_TYPES = (DType.I8, DType.U8, DType.I16)


def with_means_of_rows(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """Reduce each row before all of them. Returns the nodes that do, with the mean they belong to.

    Quantized results are the same, because their sums are exact; f32 is rounded once more.
    """
    tensors = dict(graph.tensors)
    nodes: list[Node] = []
    means: dict[str, str] = {}
    for node in graph.nodes:
        pair = _divided(tensors, node)
        if pair is not None:
            means[pair[0].name] = node.name
        nodes += pair or (node,)
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors), means


def without_means_of_rows(graph: Graph, whole: Graph, means: Mapping[str, str]) -> Graph:
    """Replace pairs that no band has divided by the means of `whole`."""
    consumers, originals = graph.consumers(), {node.name: node for node in whole.nodes}
    undivided = {
        node.name: node.outputs[0]
        for node in graph.nodes
        if node.name in means and len(consumers[node.outputs[0]]) == 1
    }
    restored = {means[name] for name in undivided}
    nodes = tuple(
        originals[node.name] if node.name in restored else node
        for node in graph.nodes
        if node.name not in undivided
    )
    rows = {*undivided.values()}
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in rows}
    return dataclasses.replace(graph, nodes=nodes, tensors=tensors)


def _divided(tensors: dict[str, Tensor], node: Node) -> tuple[Node, Node] | None:
    """Add a tensor and return the two nodes; None unless the outermost axis is among several."""
    op = node.op
    if not isinstance(op, ops.Mean):
        return None
    x, out = tensors[node.inputs[0] or ""], tensors[node.outputs[0]]
    long = [axis for axis, size in enumerate(x.shape) if size > 1]
    inner = tuple(axis for axis in op.axes if axis in long[1:])
    if not inner or long[0] not in op.axes or x.dtype not in (DType.F32, *_QUANTIZED_TYPES):
        return None
    first: Operator = ops.Mean(inner, keep_dims=True)
    last: Operator = op
    quant = None
    if x.dtype in _QUANTIZED_TYPES:
        assert x.quant is not None
        quant = Quant(x.quant.scale, np.zeros_like(x.quant.zero_point))
        first = ops.QuantizedSum(inner)
        count = int(np.prod([x.shape[axis] for axis in op.axes]))
        last = ops.MeanOfSums(op.axes, op.keep_dims, count, out.dtype)
    rows = f"{out.name}/rows"
    while rows in tensors:
        rows += "'"
    ((shape, dtype),) = first.infer([x])
    tensors[rows] = Tensor(rows, shape, dtype, quant)
    pair = Node(f"{node.name}/rows", first, node.inputs, (rows,))
    return pair, Node(node.name, last, (rows,), node.outputs)
