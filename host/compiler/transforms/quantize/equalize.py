"""Cross-layer equalization: gives an image's channels similar ranges, so that one scale suits all.

A channel may be divided by any positive factor in the products that write it if the weights of all
products that read it are multiplied by the same factor: the graph computes the same result. This
commutes with additions, pools and ReLUs, so a complete residual stream is equalized together. A
depthwise convolution has a scale per channel anyway and loses nothing; elsewhere the factor is a
compromise between the image's channels and the weights' columns. After a ReLU6, the largest
magnitude seen in samples, plus a margin, may grow at most to 6, so that only values beyond the
samples, or already clipped before, are clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Activation, Array, Graph, Node, Tensor
from edgekit.host.compiler.transforms.quantize.rules import can_be_quantized, computed_floats
from edgekit.host.compiler.transforms.quantize.scales import ScaleGroups

Largest = Mapping[str, NDArray[np.float32]]
_FINEST = 1 / 64  # smallest factor: below it, weights of dead channels would dominate
_ABOVE = 1.25  # margin over the largest sampled magnitude before a ReLU6 may clip the channel
_SCALABLE = (Activation.NONE, Activation.RELU, Activation.RELU6)


@dataclass(frozen=True)
class _Stream:
    """Images with the same channels, those written by a ReLU6 (`clipped`), and the nodes that write
    and read them."""

    tensors: tuple[str, ...]
    clipped: tuple[str, ...]
    makers: tuple[Node, ...]
    readers: tuple[Node, ...]


def equalize(graph: Graph, largest: Largest) -> Graph:
    """Equalize channels wherever the operators allow it; returns `graph` itself if none do.
    `largest`: maximum magnitudes in samples, per tensor and channel."""
    tensors, taken = dict(graph.tensors), {*graph.tensors}
    nodes = {node.name: node for node in graph.nodes}
    for stream in _find_streams(graph):
        factor = _channel_divisors(stream, nodes, tensors, largest)
        if factor is None:
            continue
        for node in stream.makers:
            channels = graph.tensors[node.outputs[0]].shape[-1]
            mine = nodes[node.name]
            nodes[node.name] = _scale_weights(mine, 1 / factor[:channels], tensors, taken, True)
        for node in stream.readers:
            channels = graph.tensors[node.inputs[0] or ""].shape[-1]
            mine = nodes[node.name]
            nodes[node.name] = _scale_weights(mine, factor[:channels], tensors, taken, False)
    if all(nodes[n.name] is n for n in graph.nodes):
        return graph
    made = tuple(nodes[n.name] for n in graph.nodes)
    used = {t for n in made for t in (*n.inputs, *n.outputs)} | {*graph.inputs, *graph.outputs}
    return replace(graph, nodes=made, tensors={k: t for k, t in tensors.items() if k in used})


def _find_streams(graph: Graph) -> Iterable[_Stream]:
    """Sets of images whose channels can be scaled together, in execution order."""
    groups, passing = ScaleGroups(), {n.name for n in graph.nodes if _passes_scale(graph, n)}
    for node in graph.nodes:
        if node.name in passing:
            for name in computed_floats(graph, node.inputs):
                groups.join(name, node.outputs[0])
    members: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in node.outputs:
            members.setdefault(groups.of(name), []).append(name)
    ends = {groups.of(name) for name in (*graph.inputs, *graph.outputs)}
    producer, consumers = graph.producer(), graph.consumers()
    for root, names in members.items():
        makers = {n.name: n for t in names if (n := producer[t]).name not in passing}
        readers = {n.name: n for t in names for n in consumers[t] if n.name not in passing}
        fits = (
            root not in ends
            and readers
            and all(_is_scalable_producer(graph, n) for n in makers.values())
        )
        if fits and all(_is_scalable_consumer(graph, n, names) for n in readers.values()):
            clipped = (t for t in names if _activation_of(producer[t]) is Activation.RELU6)
            yield _Stream(tuple(names), (*clipped,), (*makers.values(),), (*readers.values(),))


def _activation_of(node: Node) -> Activation:
    found = getattr(node.op, "activation", Activation.NONE)
    assert isinstance(found, Activation)
    return found


def _passes_scale(graph: Graph, node: Node) -> bool:
    """Whether channels stay separate and a positive factor commutes with the operator."""
    ins = [None if name is None else graph.tensors[name] for name in node.inputs]
    return node.op.keeps_factors(ins) and _activation_of(node) in _SCALABLE


def _is_scalable_producer(graph: Graph, node: Node) -> bool:
    """Whether the node is a product whose output channels can be scaled."""
    return (
        isinstance(node.op, ops.Weighted)
        and can_be_quantized(graph, node, ())
        and _activation_of(node) in _SCALABLE
    )


def _is_scalable_consumer(graph: Graph, node: Node, names: Iterable[str]) -> bool:
    """Whether the node is a product whose input channels can be scaled."""
    if not isinstance(node.op, ops.Weighted) or not can_be_quantized(graph, node, ()):
        return False
    if isinstance(node.op, ops.DepthwiseConv2D) and node.op.multiplier != 1:
        return False
    x, w = graph.tensors[node.inputs[0] or ""], graph.tensors[node.inputs[1] or ""]
    return x.name in names and x.shape[-1] == w.shape[-1]


def _channel_divisors(
    stream: _Stream, nodes: Mapping[str, Node], tensors: Mapping[str, Tensor], largest: Largest
) -> NDArray[np.float64] | None:
    """Divisors per channel, each at most 1."""
    count = max(tensors[name].shape[-1] for name in stream.tensors)
    image = np.zeros(count)
    for name in stream.tensors:
        found = largest.get(name)
        if found is None or found.size != tensors[name].shape[-1]:
            return None
        share = found / max(float(found.max(initial=0.0)), 1e-30)
        image[: share.size] = np.maximum(image[: share.size], share)
    columns = np.zeros(count)
    for reader in stream.readers:
        if isinstance(reader.op, ops.DepthwiseConv2D):
            continue
        weights = tensors[nodes[reader.name].inputs[1] or ""].data
        assert weights is not None
        rows = np.abs(weights.reshape(weights.shape[0], -1, weights.shape[-1])).max(axis=1)
        share = (rows / np.maximum(rows.max(axis=1, keepdims=True), 1e-30)).max(axis=0)
        columns[: share.size] = np.maximum(columns[: share.size], share)
    factor = np.sqrt(image / np.maximum(columns, _FINEST)) if columns.any() else image
    factor = factor / max(float(factor.max(initial=0.0)), 1e-30)
    least = np.full(count, _FINEST)
    for name in stream.clipped:
        own = _ABOVE * largest[name].astype(np.float64) / Activation.RELU6.bounds[1]
        least[: own.size] = np.maximum(least[: own.size], own)
    return np.clip(factor, np.minimum(least, 1.0), 1.0)


def _scale_weights(
    node: Node,
    factor: NDArray[np.float64],
    tensors: dict[str, Tensor],
    taken: set[str],
    is_output: bool,
) -> Node:
    """Multiply weights and bias per output channel, or weights per input channel."""
    w = tensors[node.inputs[1] or ""]
    assert w.data is not None
    by_rows = is_output and node.op.weight_axis == 0
    shape = (-1, *(1,) * (len(w.shape) - 1)) if by_rows else (-1,)
    inputs = list(node.inputs)
    inputs[1] = _add_constant(w, w.data * factor.reshape(shape), tensors, taken)
    if is_output and len(inputs) > 2 and inputs[2] is not None:
        bias = tensors[inputs[2]]
        assert bias.data is not None
        inputs[2] = _add_constant(bias, bias.data * factor, tensors, taken)
    return replace(node, inputs=tuple(inputs))


def _add_constant(like: Tensor, values: Array, tensors: dict[str, Tensor], taken: set[str]) -> str:
    name = fresh_name(f"{like.name}.equalized", taken)
    tensors[name] = replace(like, name=name, data=values.astype(np.float32), sparse=False)
    return name
