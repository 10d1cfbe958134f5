"""Accuracy of a quantized model relative to float: cosine, signal to noise, classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.transforms.quantize.rules import fixed_quant

Outputs = Mapping[str, Array]
_NONE = 1e-30
_MOST_DB = 200.0  # reported for equal values


@dataclass(frozen=True)
class QuantizationError:
    """Difference between a tensor's values with and without quantization.

    Cosine similarity (over all samples or averaged per sample, whichever is less, so that a few
    large values do not dominate), signal-to-noise ratio over all samples in dB, and the largest
    absolute difference, also as a fraction of the largest float value.
    """

    cosine: float
    snr_db: float
    largest: float
    off: float


def difference(exact: Sequence[Array], other: Sequence[Array]) -> QuantizationError:
    """Compare a tensor's values over samples."""
    a = np.concatenate([np.asarray(x, np.float64).reshape(-1) for x in exact])
    b = np.concatenate([np.asarray(x, np.float64).reshape(-1) for x in other])
    signal, noise = float(a @ a), float((a - b) @ (a - b))
    if noise == 0.0:
        return QuantizationError(1.0, _MOST_DB, 0.0, 0.0)
    each = [_cosine(x, y) for x, y in zip(exact, other, strict=True)]
    cosine = min(_cosine(a, b), sum(each) / len(each))
    snr = 10 * math.log10(max(signal, _NONE) / noise)
    largest = float(np.abs(a - b).max())
    off = largest / max(float(np.abs(a).max()), _NONE)
    return QuantizationError(cosine, max(min(snr, _MOST_DB), -_MOST_DB), largest, off)


def _cosine(x: Array, y: Array) -> float:
    a, b = (np.asarray(v, np.float64).reshape(-1) for v in (x, y))
    lengths = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / lengths if lengths else float(not (a.any() or b.any()))


def worst(differences: Mapping[str, QuantizationError]) -> QuantizationError:
    """Return the difference of the output with the lowest cosine."""
    return min(differences.values(), key=lambda d: d.cosine)


def compared(
    graph: Graph, exact: Sequence[Outputs], other: Sequence[Outputs]
) -> dict[str, QuantizationError]:
    """Compare each float output of `graph` over all samples. An output with a fixed range counts as
    equal if both models stay below one quantization step."""
    steps, found = _fixed_output_steps(graph), {}
    for name in (name for name, y in exact[0].items() if y.dtype.kind == "f"):
        a, b = [e[name] for e in exact], [o[name] for o in other]
        step = steps.get(name, 0.0)
        if all(np.abs(y).max(initial=0.0) < step for y in (*a, *b)):
            a = b
        found[name] = difference(a, b)
    return found


def _fixed_output_steps(graph: Graph) -> dict[str, float]:
    """Quantization steps of outputs whose functions have a fixed range."""
    producer, steps = graph.producer(), {}
    for name in graph.outputs:
        node = producer.get(name)
        while node is not None and node.op.on_quantized.keeps_scale:
            node = producer.get(node.inputs[0] or "")
        quant = None if node is None else fixed_quant(node)
        if quant is not None:
            steps[name] = float(quant.scale[0])
    return steps


def class_output(graph: Graph) -> str | None:
    """Return the output whose argmax is the class: the only output, with one row of at least two
    values; None if there is no such output."""
    rows = [
        name
        for name in graph.outputs
        if graph.tensors[name].shape
        and graph.tensors[name].elements > 1
        and graph.tensors[name].shape[-1] == graph.tensors[name].elements
    ]
    return rows[0] if len(rows) == 1 == len(graph.outputs) else None


def classes(outputs: Sequence[Outputs], name: str) -> NDArray[np.int64]:
    """Return the class of each sample."""
    return np.array([int(np.argmax(each[name])) for each in outputs], np.int64)


@dataclass(frozen=True)
class Classes:
    """Share of samples that two models classify alike; with labels, the share each classifies
    correctly."""

    same: float
    right_before: float | None = None
    right_after: float | None = None


def classes_compared(
    graph: Graph,
    exact: Sequence[Outputs],
    other: Sequence[Outputs],
    labels: NDArray[np.int64] | None,
) -> Classes | None:
    """None if `graph` is no classifier. `labels`: the class of each sample."""
    name = class_output(graph)
    if name is None:
        return None
    before, after = classes(exact, name), classes(other, name)
    same = float((before == after).mean())
    if labels is None:
        return Classes(same)
    return Classes(same, float((before == labels).mean()), float((after == labels).mean()))
