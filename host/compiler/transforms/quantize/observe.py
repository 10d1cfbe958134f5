"""What a float graph computes of samples: the values of its tensors, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate, run_node
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.transforms.quantize.histogram import Histogram
from edgekit.host.compiler.transforms.quantize.rounding import moments_of
from edgekit.host.compiler.transforms.quantize.rules import can_be_quantized, computed_floats
from edgekit.host.compiler.transforms.quantize.saturation import ends_of_use

_SEEN = 16  # samples whose moments are taken

Sample = Mapping[str, Array]


@dataclass
class Observed:
    """Of each float tensor that is computed or given: its values, and the lowest and highest per
    channel (its last axis). `moments`: of what products with weights see.
    `broken` have values that are not finite."""

    histograms: dict[str, Histogram] = field(default_factory=dict)
    lowest: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    highest: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    moments: dict[str, Array] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def add(self, name: str, values: Array) -> None:
        """Counts one sample's values of a tensor."""
        if not np.isfinite(values).all():
            self.broken.add(name)
            return
        self.histograms.setdefault(name, Histogram()).add(values)
        if values.ndim and values.size:
            rows = values.reshape(-1, values.shape[-1])
            low, high = rows.min(axis=0), rows.max(axis=0)
            self.lowest[name] = np.minimum(self.lowest.get(name, low), low)
            self.highest[name] = np.maximum(self.highest.get(name, high), high)

    @property
    def largest(self) -> dict[str, NDArray[np.float32]]:
        """The largest magnitude of each tensor per channel."""
        return {name: np.maximum(-low, self.highest[name]) for name, low in self.lowest.items()}

    @property
    def middles(self) -> dict[str, NDArray[np.float32]]:
        """The middle between lowest and highest value of each tensor per channel."""
        half = np.float32(0.5)
        return {name: (low + self.highest[name]) * half for name, low in self.lowest.items()}

    @property
    def reaches(self) -> dict[str, NDArray[np.float32]]:
        """How far values are from the middles at most."""
        half = np.float32(0.5)
        return {name: (self.highest[name] - low) * half for name, low in self.lowest.items()}

    def look(self, graph: Graph, node: Node, values: Mapping[str, Array]) -> None:
        """Adds the moments of what a product sees of one sample."""
        made = moments_of(graph, node, values) if isinstance(node.op, ops.Weighted) else None
        if made is not None and np.isfinite(made).all():
            before = self.moments.get(node.name)
            self.moments[node.name] = made if before is None else before + made


def observe(graph: Graph, samples: Sequence[Sample]) -> Observed:
    """Runs the float graph on each sample, and looks at all that it computes. Counts of values
    only what makes a difference: of operands of an addition with a ReLU, what is below 0 with the
    other one may be anything that is; what only functions read that have ends is counted up to
    these."""
    found, looking, floored = Observed(), True, _floored(graph)
    ends = ends_of_use(graph)

    def run(node: Node, tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> list[Array]:
        made = run_node(node, tensors, values)
        if looking and can_be_quantized(graph, node, found.broken):
            found.look(graph, node, values)
        for name in floored.get(node.name, ()):
            found.add(name, _above_floor(node, name, values))
        for name, y in zip(node.outputs, made, strict=True):
            if tensors[name].dtype is DType.F32 and name not in late:
                found.add(name, np.clip(y, *ends[name]) if name in ends else y)
        return made

    late = {name for names in floored.values() for name in names}
    for number, sample in enumerate(samples):
        looking = number < _SEEN
        for name in graph.inputs:
            if graph.tensors[name].dtype is DType.F32:
                found.add(name, sample[name])
        evaluate(graph, sample, runner=run)
    return found


def _floored(graph: Graph) -> dict[str, list[str]]:
    """Of additions with a ReLU, by name, the computed operands that nothing else reads."""
    found: dict[str, list[str]] = {}
    consumers, ends = graph.consumers(), {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        if isinstance(node.op, ops.Add) and node.op.activation.bounds[0] == 0.0:
            alone = (n for n in computed_floats(graph, node.inputs) if len(consumers[n]) == 1)
            found[node.name] = [name for name in alone if name not in ends]
    return found


def _above_floor(node: Node, name: str, values: Mapping[str, Array]) -> Array:
    """The values nearest to 0 that an operand of an addition could have for the same sums, where
    these are not cut off at 0."""
    first, second = (values[n or ""] for n in node.inputs)
    mine, other = (first, second) if name == node.inputs[0] else (second, first)
    raised: Array = np.where(mine < 0, np.minimum(np.maximum(mine, -other), 0), mine)
    # Of a sum that is cut off anyway nothing above 0 is needed either.
    return np.where((mine > 0) & (mine + other <= 0), 0, raised).astype(np.float32)
