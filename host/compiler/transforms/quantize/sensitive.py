"""Ranks quantized operators by output noise per saved time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate, run_node
from edgekit.host.compiler.ir.quantization import dequantize
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.transforms.quantize.build import QuantizedGraph, quantize_like
from edgekit.host.compiler.transforms.quantize.measure import compared
from edgekit.host.compiler.transforms.quantize.observe import Sample

_LOUDEST = 12  # noisiest nodes considered at a time
_NOTHING = 1e-3  # of the total cost


def noises(graph: Graph, quantized: QuantizedGraph, samples: Sequence[Sample]) -> dict[str, float]:
    """Relative output noise power of each quantized node if it alone is quantized and all others
    compute in float."""
    if graph.states:
        return {}
    noise: dict[str, float] = {}
    nodes = {n.name: n for n in quantized.graph.nodes}
    for sample in samples:
        exact = evaluate(graph, sample, keep_tensors=True)
        for index, node in enumerate(graph.nodes):
            alone = nodes.get(node.name)
            if (
                alone is None
                or node.op.on_quantized.keeps_scale
                or not _is_quantized(alone, quantized.graph)
            ):
                continue
            values = dict(exact.tensors)
            made = _run_quantized_node(alone, quantized.graph.tensors, values, node)
            values.update(zip(node.outputs, made, strict=True))
            rerun(graph, index, values)
            found = compared(graph, [exact.outputs], [{n: values[n] for n in graph.outputs}])
            share = float(np.mean([10 ** (-d.snr_db / 10) for d in found.values()]))
            noise[node.name] = noise.get(node.name, 0.0) + share
    return noise


def next_in_floats(
    noise: Mapping[str, float],
    floats: frozenset[str],
    cost: Callable[[frozenset[str]], float],
    added: dict[str, float],
) -> tuple[str, float] | None:
    """Among the noisiest nodes not yet in `floats`, return the one that removes the most noise per
    added cost, and the resulting cost. `cost`: microseconds with the given nodes in float. `added`:
    last known added cost per node; only the best candidate's is updated."""
    rest = sorted((name for name in noise if name not in floats), key=lambda name: -noise[name])
    if not rest:
        return None
    before, costs = cost(floats), dict[str, float]()
    # Treat tiny added costs as equal, so that the noisier node goes first.
    least = _NOTHING * before
    while True:
        best = max(
            rest[:_LOUDEST], key=lambda name: noise[name] / max(added.get(name, least), least)
        )
        if best in costs:
            return best, costs[best]
        costs[best] = cost(floats | {best})
        added[best] = costs[best] - before


def _is_quantized(node: Node, graph: Graph) -> bool:
    """Whether the node is quantized, or computes in float with rounded weights."""
    rounded = isinstance(node.op, ops.Recurrent) and graph.tensors[node.inputs[1] or ""].quant
    return bool(rounded) or graph.tensors[node.outputs[0]].dtype is DType.I8


def _run_quantized_node(
    node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array], original: Node
) -> list[Array]:
    """Run the quantized node on quantized float values and dequantize its outputs."""
    ins: dict[str, Array] = {}
    for name, source in zip(node.inputs, original.inputs, strict=False):
        if name is None:
            continue
        tensor = tensors[name]
        if tensor.data is not None:
            ins[name] = tensor.data
        elif source is not None:
            x = values[source]
            ins[name] = quantize_like(x, tensor) if tensor.dtype is DType.I8 else x
    # A bias that exists only in the quantized graph.
    ins |= {
        n: t.data for n in node.inputs if n and (t := tensors[n]).data is not None and n not in ins
    }
    quants = [tensors[name].quant for name in node.outputs]
    made = run_node(node, tensors, ins)
    return [y if q is None else dequantize(y, q) for y, q in zip(made, quants, strict=True)]


def rerun(graph: Graph, start: int, values: dict[str, Array]) -> None:
    """Recompute everything that depends on the outputs of node `start`."""
    changed = {*graph.nodes[start].outputs}
    for node in graph.nodes[start + 1 :]:
        if changed & {*node.inputs}:
            values.update(zip(node.outputs, run_node(node, graph.tensors, values), strict=True))
            changed |= {*node.outputs}
