"""Runs a float graph on samples and collects statistics of its tensors."""

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

Ends = tuple[float, float]


def ends_of_use(graph: Graph) -> dict[str, Ends]:
    """Return the limits of tensors read only by saturating functions, directly or after being
    moved: values beyond the limits yield the same quantized results."""
    consumers, found = graph.consumers(), dict[str, Ends]()
    for node in reversed(graph.nodes):
        for name in node.outputs:
            each = [_of_reader(reader, found) for reader in consumers[name]]
            known = [ends for ends in each if ends is not None]
            if known and len(known) == len(each) and name not in graph.outputs:
                found[name] = min(low for low, _ in known), max(high for _, high in known)
    return found


def _of_reader(node: Node, found: dict[str, Ends]) -> Ends | None:
    """Operators that only move values inherit the limits of their output."""
    return found.get(node.outputs[0]) if node.op.places_values else node.op.saturation()


_SEEN = 16  # samples that moments are accumulated over

Sample = Mapping[str, Array]


@dataclass
class Observed:
    """Histograms of all non-constant float tensors, and minima and maxima per channel (last axis).
    `moments`: second moments of the inputs of products with weights. `broken`: tensors with
    non-finite values."""

    histograms: dict[str, Histogram] = field(default_factory=dict)
    lowest: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    highest: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    moments: dict[str, Array] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def extent(self, name: str) -> float:
        """How far the values of a tensor are apart; 0 if they are not known."""
        found = self.histograms.get(name)
        return found.high - found.low if found else 0.0

    def add(self, name: str, values: Array) -> None:
        """Count one sample's values of a tensor."""
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
        """Largest magnitude per tensor and channel."""
        return {name: np.maximum(-low, self.highest[name]) for name, low in self.lowest.items()}

    @property
    def middles(self) -> dict[str, NDArray[np.float32]]:
        """Midpoint of the minimum and maximum per tensor and channel."""
        half = np.float32(0.5)
        return {name: (low + self.highest[name]) * half for name, low in self.lowest.items()}

    @property
    def reaches(self) -> dict[str, NDArray[np.float32]]:
        """Largest distance from the midpoint per tensor and channel."""
        half = np.float32(0.5)
        return {name: (self.highest[name] - low) * half for name, low in self.lowest.items()}

    def look(self, graph: Graph, node: Node, values: Mapping[str, Array]) -> None:
        """Accumulate the input moments of a product for one sample."""
        made = moments_of(graph, node, values) if isinstance(node.op, ops.Weighted) else None
        if made is not None and np.isfinite(made).all():
            before = self.moments.get(node.name)
            self.moments[node.name] = made if before is None else before + made


def observe(graph: Graph, samples: Sequence[Sample]) -> Observed:
    """Run the float graph on each sample and collect statistics.

    Only values that affect the result are counted. If an addition has a ReLU, operands are clamped
    to values that matter, given that sums below 0 become 0; tensors read only by saturating
    functions are clamped to their limits.
    """
    found, looking, floored = Observed(), True, _relu_add_operands(graph)
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


def _relu_add_operands(graph: Graph) -> dict[str, list[str]]:
    """Map additions with a ReLU to their computed operands that nothing else reads."""
    found: dict[str, list[str]] = {}
    consumers, ends = graph.consumers(), {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        if isinstance(node.op, ops.Add) and node.op.activation.bounds[0] == 0.0:
            alone = (n for n in computed_floats(graph, node.inputs) if len(consumers[n]) == 1)
            found[node.name] = [name for name in alone if name not in ends]
    return found


def _above_floor(node: Node, name: str, values: Mapping[str, Array]) -> Array:
    """Replace an addition operand by the values nearest to 0 that give the same result after the
    ReLU."""
    first, second = (values[n or ""] for n in node.inputs)
    mine, other = (first, second) if name == node.inputs[0] else (second, first)
    raised: Array = np.where(mine < 0, np.minimum(np.maximum(mine, -other), 0), mine)
    # If the sum is negative anyway, positive values of the operand do not matter either.
    return np.where((mine > 0) & (mine + other <= 0), 0, raised).astype(np.float32)
