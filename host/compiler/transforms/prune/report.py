"""Loss by pruning, per layer and of the complete model, measured on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.transforms.quantize.measure import (
    Classes,
    QuantizationError,
    classes_compared,
    compared,
    difference,
)
from edgekit.host.compiler.transforms.quantize.observe import Sample

BROKEN = 1.0  # standard deviations: with a larger error of peaks, decisions change
_LAYER_SAMPLES = 4  # samples for which all tensors are compared


@dataclass(frozen=True)
class PrunedLayer:
    """One layer with weights: its outputs, inputs per output, share of zero weights, accumulated
    difference from the float model, and why it is dense ("" if it was pruned)."""

    name: str
    kind: str
    outputs: int
    inputs: int
    sparsity: float
    difference: QuantizationError
    dense: str


@dataclass(frozen=True)
class PruneReport:
    """`outputs` and `layers` are measured on `unseen` held-out samples; weights were fitted to
    `seen` others. `peaks`: mean error of each output's largest value per sample, in standard
    deviations of all its values. Detection scores are peaks, too few to affect cosine or noise.
    `broken_at`: the larger share of zeros that was tried first, and broke the model; or 0."""

    outputs: Mapping[str, QuantizationError]
    layers: tuple[PrunedLayer, ...]
    peaks: Mapping[str, float]
    classes: Classes | None
    seen: int
    unseen: int
    broken_at: float = 0.0

    @property
    def cosine(self) -> float:
        """Cosine of the worst output."""
        return min((d.cosine for d in self.outputs.values()), default=1.0)

    @property
    def broken(self) -> str:
        """The output with the largest peak error if it exceeds BROKEN, else ""."""
        worst = max(self.peaks, key=lambda name: self.peaks[name], default="")
        return worst if worst and self.peaks[worst] > BROKEN else ""

    @property
    def pruned(self) -> tuple[PrunedLayer, ...]:
        """The layers that were pruned."""
        return tuple(layer for layer in self.layers if not layer.dense)

    @property
    def sparsity(self) -> float:
        """Share of zeros in the weights of all pruned layers."""
        zeros = sum(layer.sparsity * layer.inputs * layer.outputs for layer in self.pruned)
        return zeros / max(sum(layer.inputs * layer.outputs for layer in self.pruned), 1)


def report_of(
    graph: Graph,
    made: Graph,
    dense: Mapping[str, str],
    samples: Sequence[Sample],
    labels: NDArray[np.int64] | None,
    seen: int,
) -> PruneReport:
    """Compare the outputs of `made` and `graph` on `samples`; `dense` is from `layers_of`."""
    exact = [evaluate(graph, each).outputs for each in samples]
    ours = [evaluate(made, each).outputs for each in samples]
    layers = _compare_layers(graph, made, dense, samples[:_LAYER_SAMPLES])
    classes = classes_compared(graph, exact, ours, labels)
    outputs = compared(graph, exact, ours)
    peaks = {
        name: _peak_error([e[name] for e in exact], [o[name] for o in ours]) for name in outputs
    }
    return PruneReport(outputs, layers, peaks, classes, seen, len(samples))


def _peak_error(exact: Sequence[Array], ours: Sequence[Array]) -> float:
    spread = float(np.std(np.stack(exact), dtype=np.float64))
    off = np.mean([abs(float(a.max()) - float(b.max())) for a, b in zip(exact, ours, strict=True)])
    return float(off) / spread if spread else 0.0


def _compare_layers(
    graph: Graph, made: Graph, dense: Mapping[str, str], samples: Sequence[Sample]
) -> tuple[PrunedLayer, ...]:
    nodes = [node for node in graph.nodes if node.name in dense]
    values: dict[str, tuple[list[Array], list[Array]]] = {n.name: ([], []) for n in nodes}
    for sample in samples:
        for side, each in enumerate((graph, made)):
            tensors = evaluate(each, sample, keep_tensors=True).tensors
            for node in nodes:
                values[node.name][side].append(tensors[node.outputs[0]])
    layers = []
    for node in nodes:
        weights = made.tensors[node.inputs[1] or ""]
        zeros = 0.0
        if weights.data is not None:
            zeros = 1 - int(np.count_nonzero(weights.data)) / weights.elements
        outputs = graph.tensors[node.outputs[0]].shape[-1]
        inputs = weights.elements // max(outputs, 1)
        found = difference(*values[node.name])
        why = dense[node.name]
        layers.append(PrunedLayer(node.name, node.op.kind, outputs, inputs, zeros, found, why))
    return tuple(layers)
