"""What pruning lost, by layer and of the whole, on samples it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import Array, Graph
from edgekit.host.quantize.measure import (
    Classes,
    Difference,
    classes_compared,
    compared,
    difference,
)
from edgekit.host.quantize.observe import Sample

_LAYER_SAMPLES = 4  # of which all tensors are compared


@dataclass(frozen=True)
class Layer:
    """One product with weights: its outputs and inputs of each, the share of weights that are 0,
    how far what it makes is from the float model's, with all that layers before it add, and why it
    is dense ("" where it was pruned)."""

    name: str
    kind: str
    outputs: int
    inputs: int
    sparsity: float
    difference: Difference
    dense: str


@dataclass(frozen=True)
class Report:
    """`outputs` and `layers` were measured on `unseen` samples, apart from the `seen` ones, which
    weights were fitted to."""

    outputs: Mapping[str, Difference]
    layers: tuple[Layer, ...]
    classes: Classes | None
    seen: int
    unseen: int

    @property
    def cosine(self) -> float:
        """That of the worst output."""
        return min((d.cosine for d in self.outputs.values()), default=1.0)

    @property
    def pruned(self) -> tuple[Layer, ...]:
        """The layers that were pruned."""
        return tuple(layer for layer in self.layers if not layer.dense)

    @property
    def sparsity(self) -> float:
        """Of the weights of all pruned layers."""
        zeros = sum(layer.sparsity * layer.inputs * layer.outputs for layer in self.pruned)
        return zeros / max(sum(layer.inputs * layer.outputs for layer in self.pruned), 1)


def report_of(
    graph: Graph,
    made: Graph,
    dense: Mapping[str, str],
    samples: Sequence[Sample],
    labels: NDArray[np.int64] | None,
    seen: int,
) -> Report:
    """Compares what `made` and `graph` compute of `samples`; `dense` as `layers_of` gives it."""
    exact = [evaluate(graph, each).outputs for each in samples]
    ours = [evaluate(made, each).outputs for each in samples]
    layers = _layers(graph, made, dense, samples[:_LAYER_SAMPLES])
    classes = classes_compared(graph, exact, ours, labels)
    return Report(compared(graph, exact, ours), layers, classes, seen, len(samples))


def _layers(
    graph: Graph, made: Graph, dense: Mapping[str, str], samples: Sequence[Sample]
) -> tuple[Layer, ...]:
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
        layers.append(Layer(node.name, node.op.kind, outputs, inputs, zeros, found, why))
    return tuple(layers)
