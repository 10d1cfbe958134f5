"""Loss by quantization, per layer and of the complete model, measured on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import LossSpec
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.quantization import dequantize
from edgekit.host.compiler.ir.types import Array, DType, Graph
from edgekit.host.compiler.transforms.quantize.build import QuantizedGraph
from edgekit.host.compiler.transforms.quantize.measure import (
    Classes,
    QuantizationError,
    classes_compared,
    compared,
    difference,
)
from edgekit.host.compiler.transforms.quantize.observe import Sample

_LAYER_SAMPLES = 4  # samples for which all tensors are compared


@dataclass(frozen=True)
class QuantizedLayer:
    """One operator: whether it is quantized, and its accumulated difference from the float
    model."""

    name: str
    kind: str
    quantized: bool
    difference: QuantizationError


@dataclass(frozen=True)
class QuantizeReport:
    """`outputs` and `layers` are measured on `unseen` held-out samples; scales were derived from
    `seen` others. Byte counts are of constants. `narrow` are inputs with far larger values in the
    field than in samples."""

    outputs: Mapping[str, QuantizationError]
    layers: tuple[QuantizedLayer, ...]
    classes: Classes | None
    seen: int
    unseen: int
    float_bytes: int
    quantized_bytes: int
    target: float = 0.0
    recipe: str = ""
    narrow: tuple[str, ...] = ()

    @property
    def cosine(self) -> float:
        """Cosine of the worst output."""
        return min((d.cosine for d in self.outputs.values()), default=1.0)

    @property
    def loss(self) -> LossSpec:
        """Loss of the complete model on the held-out samples."""
        off = max((d.off for d in self.outputs.values()), default=0.0)
        return LossSpec(float(np.clip(self.cosine, -1, 1)), off, self.unseen)

    @property
    def floats(self) -> tuple[QuantizedLayer, ...]:
        """The operators that compute in float."""
        return tuple(layer for layer in self.layers if not layer.quantized)


def report_of(
    graph: Graph,
    base: Graph,
    quantized: QuantizedGraph,
    samples: Sequence[Sample],
    labels: NDArray[np.int64] | None,
    seen: int,
) -> QuantizeReport:
    """Compare the outputs of `quantized` and `graph` on `samples`, and the tensors of `quantized`
    with those of `base`, the float graph it was built from."""
    exact = [evaluate(graph, each).outputs for each in samples]
    other = [evaluate(quantized.graph, each).outputs for each in samples]
    return QuantizeReport(
        compared(graph, exact, other),
        _compare_layers(base, quantized, samples[:_LAYER_SAMPLES]),
        classes_compared(graph, exact, other, labels),
        seen,
        len(samples),
        constant_bytes(graph),
        constant_bytes(quantized.graph),
    )


def constant_bytes(graph: Graph) -> int:
    """Total size of a graph's constants."""
    return sum(t.bytes for t in graph.tensors.values() if t.data is not None)


def _compare_layers(
    graph: Graph, quantized: QuantizedGraph, samples: Sequence[Sample]
) -> tuple[QuantizedLayer, ...]:
    values: dict[str, tuple[list[Array], list[Array]]] = {}
    shown = [
        n for n in graph.nodes
        if not n.op.on_quantized.keeps_scale and graph.tensors[n.outputs[0]].dtype is DType.F32
    ]  # fmt: skip
    for sample in samples:
        exact = evaluate(graph, sample, keep_tensors=True).tensors
        other = evaluate(quantized.graph, sample, keep_tensors=True).tensors
        for node in shown:
            name = node.outputs[0]
            pair = values.setdefault(node.name, ([], []))
            pair[0].append(exact[name])
            pair[1].append(_real_values(quantized, name, other))
    kinds = {n.name: n for n in quantized.graph.nodes}
    return tuple(
        QuantizedLayer(
            node.name,
            node.op.kind,
            quantized.graph.tensors[kinds[node.name].outputs[0]].dtype is DType.I8,
            difference(*values[node.name]),
        )
        for node in shown
    )


def _real_values(quantized: QuantizedGraph, name: str, values: Mapping[str, Array]) -> Array:
    if name not in quantized.tensors:
        return values[name]
    tensor = quantized.graph.tensors[quantized.tensors[name]]
    assert tensor.quant is not None
    return dequantize(values[tensor.name], tensor.quant)
