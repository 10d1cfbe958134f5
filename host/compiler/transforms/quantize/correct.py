"""Bias correction: subtracts the mean error that quantization adds to a sum from its bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate, last_uses, run_node
from edgekit.host.compiler.ir.quantization import dequantize
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.transforms.quantize.build import QuantizedGraph
from edgekit.host.compiler.transforms.quantize.observe import Sample

_FEWEST = 64  # sums per channel needed for a significant mean


Means = Mapping[str, NDArray[np.float64]]


def correct_biases(
    quantized: QuantizedGraph, wanted: Means, samples: Sequence[Sample]
) -> QuantizedGraph:
    """Adjust the biases of `quantized` so that each sum's mean over samples and positions equals
    that of the float graph (`wanted`, the `float_means` of the same samples). Layers are corrected
    in order, on the inputs that corrected layers produce."""
    if quantized.graph.states:
        return quantized  # states would require running the samples in sequence
    tensors = dict(quantized.graph.tensors)
    constants = {name: t.data for name, t in tensors.items() if t.data is not None}
    values: list[dict[str, Array]] = [{**constants, **sample} for sample in samples]
    ends = last_uses(quantized.graph)
    for index, node in enumerate(quantized.graph.nodes):
        if _is_quantized_product(node, tensors) and node.name in wanted:
            found = _channel_means([_real_sums(node, tensors, each) for each in values])
            if found is not None:
                _shift_bias(node, tensors, values, wanted[node.name] - found)
        for each in values:
            each.update(zip(node.outputs, run_node(node, tensors, each), strict=True))
            for name in ends.get(index, ()):
                del each[name]
    return replace(quantized, graph=replace(quantized.graph, tensors=tensors))


def _is_quantized_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    return isinstance(node.op, ops.Weighted) and tensors[node.outputs[0]].dtype is DType.I8


def float_means(graph: Graph, samples: Sequence[Sample]) -> Means:
    """Return the mean per channel, before activation, of each product with weights."""
    sums: dict[str, list[Array]] = {}

    def run(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> list[Array]:
        made = run_node(node, tensors, values)
        if isinstance(node.op, ops.Weighted) and len(node.inputs) <= 3:
            plain = _without_activation(node)
            before = made if plain is node else run_node(plain, tensors, values)
            sums.setdefault(node.name, []).append(before[0].reshape(-1, before[0].shape[-1]))
        return made

    means: dict[str, NDArray[np.float64]] = {}
    totals: dict[str, list[tuple[NDArray[np.float64], int]]] = {}
    for sample in samples:
        evaluate(graph, sample, runner=run)
        for name, parts in sums.items():
            totals.setdefault(name, []).extend(
                (p.sum(axis=0, dtype=np.float64), len(p)) for p in parts
            )
        sums.clear()
    for name, each in totals.items():
        count = sum(n for _, n in each)
        if count >= _FEWEST:
            means[name] = np.sum([s for s, _ in each], axis=0) / count
    return means


def _without_activation(node: Node) -> Node:
    op = node.op
    if not isinstance(op, ops.Weighted) or op.activation is Activation.NONE:
        return node
    return replace(node, op=replace(op, activation=Activation.NONE))


def _real_sums(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> Array:
    """The sums of a quantized product as real values [rows, channels], before requantization."""
    ins: dict[str, Tensor] = {}
    real: dict[str, Array] = {}
    for name in node.inputs:
        if name is not None:
            quant = tensors[name].quant
            assert quant is not None
            ins[name] = replace(tensors[name], dtype=DType.F32, quant=None)
            real[name] = dequantize(values[name], quant)
    out = replace(tensors[node.outputs[0]], dtype=DType.F32, quant=None)
    plain = _without_activation(node)
    y = run_node(plain, {**ins, out.name: out}, real)[0]
    return y.reshape(-1, y.shape[-1])


def _channel_means(parts: Sequence[Array]) -> NDArray[np.float64] | None:
    count = sum(len(p) for p in parts)
    if count < _FEWEST:
        return None
    total: NDArray[np.float64] = np.sum([p.sum(axis=0, dtype=np.float64) for p in parts], axis=0)
    return total / count


def _shift_bias(
    node: Node,
    tensors: dict[str, Tensor],
    values: Sequence[dict[str, Array]],
    by: NDArray[np.float64],
) -> None:
    """Add real values to the bias, converted to units of the sums."""
    name = node.inputs[2]
    assert name is not None
    bias = tensors[name]
    assert bias.data is not None and bias.quant is not None
    ends = np.iinfo(np.int32)
    moved = np.rint(bias.data + by / bias.quant.scale.astype(np.float64))
    tensors[name] = replace(bias, data=np.clip(moved, ends.min, ends.max).astype(np.int32))
    for each in values:
        each[name] = tensors[name].data  # type: ignore[assignment]
