"""Ranges from the field: histograms made of the sketches that boards report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.sketch import KEPT, Sketch, edges
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.quantize.histogram import Histogram
from edgekit.host.compiler.transforms.quantize.observe import Sample, ends_of_use
from edgekit.host.compiler.transforms.quantize.rules import computed_floats, quantized_nodes
from edgekit.host.errors import InputError

_PLACES = 64  # in a bin of a sketch, between which its values are spread evenly
_BINS = 512  # of each sign


@dataclass(eq=False)
class FieldTensor:
    """The values of a tensor on boards: counts of the bins of positive and negative values
    [2, 512], the least and the largest finite value, and the number of others."""

    low: float = math.inf
    high: float = -math.inf
    odd: int = 0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, _BINS), np.int64))

    def add(self, sketch: Sketch, low: float, high: float, odd: int) -> None:
        """Add what a board reported."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.odd += odd
        first = sketch.top - KEPT + 1
        self.counts[:, first : sketch.top + 1] += np.reshape(sketch.counts, (2, KEPT))

    def beyond(self, low: float, high: float) -> float:
        """The fraction of the nonzero values outside a range, as far as the bins tell."""
        outside = sum(n for values, n in self.values() if not low <= values[_PLACES // 2] <= high)
        return outside / max(int(self.counts.sum()), 1)

    def values(self) -> Iterator[tuple[NDArray[np.float64], int]]:
        """Evenly spaced values in each bin, and how many values they stand for."""
        for sign, number in zip(*np.nonzero(self.counts), strict=True):
            found = np.linspace(*edges(int(number)), _PLACES, endpoint=False)
            yield (-found if sign else found), int(self.counts[sign, number])


@dataclass(frozen=True)
class FieldRanges:
    """Tensors of a float model by name, from so many inferences on so many boards."""

    tensors: Mapping[str, FieldTensor]
    boards: int
    inferences: int


def watched_names(graph: Graph) -> tuple[str, ...]:
    """The tensors of a float graph whose ranges its quantization needs. The results of operators
    that only move values are left out."""
    quantized = quantized_nodes(graph, (), ())
    nodes = [n for n in graph.nodes if n.name in quantized]
    moved = {name for n in nodes if n.op.on_quantized.keeps_scale for name in n.outputs}
    names = (name for n in nodes for name in computed_floats(graph, (*n.inputs, *n.outputs)))
    return tuple(name for name in dict.fromkeys(names) if name not in moved)


def field_histograms(graph: Graph, ranges: FieldRanges) -> dict[str, Histogram]:
    """Histograms of the tensors of `graph`, without values beyond what has an effect.

    Raises InputError if the sketches are of another graph.
    """
    wanted = set(watched_names(graph))
    if not wanted & ranges.tensors.keys():
        raise InputError(
            f"{graph.name}: expected field ranges of its tensors, found those of another model or "
            "edgekit; deploy it again with --field-ranges"
        )
    ends = ends_of_use(graph)
    return {
        name: _histogram(tensor, *ends.get(name, (-np.inf, np.inf)))
        for name, tensor in ranges.tensors.items()
        if name in wanted and not tensor.odd
    }


def narrow_inputs(graph: Graph, ranges: FieldRanges, samples: Sequence[Sample]) -> tuple[str, ...]:
    """Inputs whose largest magnitude in samples is less than half of that in the field."""
    found = []
    for name in graph.inputs:
        if (tensor := ranges.tensors.get(name)) is not None:
            largest = max(float(np.abs(each[name]).max(initial=0.0)) for each in samples)
            if largest < max(-tensor.low, tensor.high) / 2:
                found.append(name)
    return tuple(found)


def _histogram(tensor: FieldTensor, least: float, most: float) -> Histogram:
    low, high = max(tensor.low, least), min(tensor.high, most)
    found = Histogram()
    found.add(np.array([low, high], np.float32))
    half = found.counts.size // 2
    for values, count in tensor.values():
        places = np.floor(np.clip(values, low, high) * 2.0**-found.exponent).astype(np.int64)
        share = np.full(_PLACES, count // _PLACES, np.int64)
        share[: count % _PLACES] += 1
        np.add.at(found.counts, np.clip(places + half, 0, 2 * half - 1), share)
    return found
