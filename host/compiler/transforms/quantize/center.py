"""Centers channels around 0: moves a channel's offset from a product's bias to its readers' biases.

A product without activation may subtract a constant from each of its channels if the biases of the
products that read it compensate. The graph computes the same result, but the quantized range, one
for all channels, no longer has to span from the lowest channel to the highest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.transforms.quantize.rules import can_be_quantized

Middles = Mapping[str, NDArray[np.float32]]


def center(graph: Graph, middles: Middles) -> tuple[Graph, set[str]]:
    """Shift channels by the middle of their values (`middles`, per tensor and channel) wherever the
    operators allow it. Returns the graph and the names of the shifted tensors."""
    tensors, taken = dict(graph.tensors), {*graph.tensors}
    nodes, consumers = {node.name: node for node in graph.nodes}, graph.consumers()
    moved: set[str] = set()
    for node in graph.nodes:
        made = node.outputs[0]
        readers = consumers[made]
        middle = middles.get(made)
        if (
            middle is None
            or not middle.any()
            or made in graph.outputs
            or not _can_shift_output(graph, node)
        ):
            continue
        if not readers or not all(_can_absorb_shift(graph, reader, made) for reader in readers):
            continue
        moved.add(made)
        nodes[node.name] = _add_to_bias(
            nodes[node.name], -middle.astype(np.float64), tensors, taken
        )
        for reader in readers:
            weights = tensors[reader.inputs[1] or ""].data
            assert weights is not None
            taps = weights.reshape(len(weights), -1, weights.shape[-1]).astype(np.float64)
            added = taps.sum(axis=1) @ middle.astype(np.float64)
            nodes[reader.name] = _add_to_bias(nodes[reader.name], added, tensors, taken)
    made_nodes = tuple(nodes[n.name] for n in graph.nodes)
    used = {t for n in made_nodes for t in (*n.inputs, *n.outputs)}
    used |= {*graph.inputs, *graph.outputs}
    kept = {k: t for k, t in tensors.items() if k in used}
    return replace(graph, nodes=made_nodes, tensors=kept), moved


def _can_shift_output(graph: Graph, node: Node) -> bool:
    """Whether the node is a product without activation."""
    op = node.op
    return (
        isinstance(op, ops.Weighted)
        and op.activation is Activation.NONE
        and can_be_quantized(graph, node, ())
    )


def _can_absorb_shift(graph: Graph, node: Node, name: str) -> bool:
    """Whether the node is an unpadded product, so that each output sees every channel of `name`
    with all of its weights."""
    if node.inputs[0] != name or not can_be_quantized(graph, node, ()):
        return False
    if isinstance(node.op, ops.Conv2D):
        if node.op.padding.any:
            return False
    elif not isinstance(node.op, ops.FullyConnected):
        return False
    return graph.tensors[name].shape[-1] == graph.tensors[node.inputs[1] or ""].shape[-1]


def _add_to_bias(
    node: Node, by: NDArray[np.float64], tensors: dict[str, Tensor], taken: set[str]
) -> Node:
    """Return the node with real values `by` added to its bias."""
    w, old = tensors[node.inputs[1] or ""], node.inputs[2] if len(node.inputs) > 2 else None
    before: Array = np.zeros(by.size) if old is None else np.asarray(tensors[old].data, np.float64)
    name = fresh_name(f"{old or f'{w.name}.bias'}.centered", taken)
    data = (before + by).astype(np.float32)
    tensors[name] = Tensor(name, data.shape, DType.F32, data=data)
    return replace(node, inputs=(node.inputs[0], node.inputs[1], name))
