"""What a float graph computes of samples: the values of its tensors, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgekit.host.graph.evaluate import evaluate, run_node
from edgekit.host.graph.types import Array, DType, Graph, Node, Tensor
from edgekit.host.quantize.histogram import Histogram
from edgekit.host.quantize.rounding import moments_of
from edgekit.host.quantize.rules import WEIGHTED, can_be_coded

_SEEN = 16  # samples whose moments are taken

Sample = Mapping[str, Array]


@dataclass
class Observed:
    """Of each float tensor that is computed or given: its values, and the largest magnitude per
    channel (its last axis). `moments`: of what products with weights see.
    `broken` have values that are not finite."""

    histograms: dict[str, Histogram] = field(default_factory=dict)
    largest: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    moments: dict[str, Array] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def add(self, name: str, values: Array) -> None:
        """Counts one sample's values of a tensor."""
        if not np.isfinite(values).all():
            self.broken.add(name)
            return
        self.histograms.setdefault(name, Histogram()).add(values)
        if values.ndim and values.size:
            most = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            self.largest[name] = np.maximum(self.largest.get(name, most), most)

    def look(self, graph: Graph, node: Node, values: Mapping[str, Array]) -> None:
        """Adds the moments of what a product sees of one sample."""
        made = moments_of(graph, node, values) if type(node.op) in WEIGHTED else None
        if made is not None and np.isfinite(made).all():
            before = self.moments.get(node.name)
            self.moments[node.name] = made if before is None else before + made


def observe(graph: Graph, samples: Sequence[Sample]) -> Observed:
    """Runs the float graph on each sample, and looks at all that it computes."""
    found, looking = Observed(), True

    def run(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> list[Array]:
        made = run_node(node, tensors, values)
        if looking and can_be_coded(graph, node, found.broken):
            found.look(graph, node, values)
        for name, y in zip(node.outputs, made, strict=True):
            if tensors[name].dtype is DType.F32:
                found.add(name, y)
        return made

    for number, sample in enumerate(samples):
        looking = number < _SEEN
        for name in graph.inputs:
            if graph.tensors[name].dtype is DType.F32:
                found.add(name, sample[name])
        evaluate(graph, sample, runner=run)
    return found
