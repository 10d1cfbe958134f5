"""Allots sparsity to layers so that the outputs lose least at a given total share of zeros.

Each layer is pruned alone and the resulting output noise is measured; how the noise grows with
sparsity follows the second-order error of the layer's own sums. Layer noises are assumed to be
independent and add up, so the optimum is where the next weight costs the same in every layer: a
Lagrangian whose multiplier is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgekit.host.compiler.ir.evaluate import evaluate, run_node
from edgekit.host.compiler.ir.types import Array, Graph, Node
from edgekit.host.compiler.transforms.prune.layer import Moments, errors, prune_layer
from edgekit.host.compiler.transforms.prune.pattern import F64, Pattern
from edgekit.host.compiler.transforms.quantize.measure import Outputs, compared
from edgekit.host.compiler.transforms.quantize.observe import Sample
from edgekit.host.compiler.transforms.quantize.rounding import seen_rows
from edgekit.host.compiler.transforms.quantize.samples import spread
from edgekit.host.compiler.transforms.quantize.sensitive import rerun

_SEEN = 8  # samples that moments are accumulated over
_RUN = 2  # samples that the outputs are computed on with a layer pruned alone
_KNOTS = (0.3, 0.5, 0.65, 0.8, 0.9, 0.96)  # sparsities at which the error is computed
_STEP = 0.01
_USEFUL = 0.5  # below this sparsity neither time nor bytes are saved
_MOST = 0.95


@dataclass(frozen=True, eq=False)
class _Curve:
    """Output noise of a layer at each sparsity of the grid, and the layer's number of weights."""

    noise: F64
    weights: int


def shares_of(
    graph: Graph, samples: Sequence[Sample], pattern: Pattern, names: Sequence[str]
) -> dict[str, float]:
    """Return the sparsity of each named layer. The mean over all weights is `pattern.sparsity`;
    n:m patterns give every layer the same."""
    if pattern.of or len(names) == 1:
        return dict.fromkeys(names, pattern.sparsity)
    seen = spread(samples, _SEEN)
    values = [evaluate(graph, each, keep_tensors=True).tensors for each in seen]
    grid = np.arange(0, max(_MOST, pattern.sparsity) + _STEP / 2, _STEP)
    curves = {
        node.name: _noise_curve(graph, index, values, pattern, grid)
        for index, node in enumerate(graph.nodes)
        if node.name in names
    }
    useful = (grid == 0) | (grid >= min(_USEFUL, pattern.sparsity) - _STEP / 2)
    return _choose_sparsities(curves, grid[useful], useful, pattern.sparsity)


def _noise_curve(
    graph: Graph, index: int, values: Sequence[Mapping[str, Array]], pattern: Pattern, grid: F64
) -> _Curve:
    node = graph.nodes[index]
    tensor = graph.tensors[node.inputs[1] or ""]
    assert tensor.data is not None
    weights = tensor.data.reshape(tensor.shape[0], -1)
    name = node.inputs[2] if len(node.inputs) > 2 else None
    bias = None if name is None else graph.tensors[name].data
    flat = None if bias is None else bias.reshape(-1)
    seen = [seen_rows(node, tensor.shape, each[node.inputs[0] or ""]) for each in values]
    moments = Moments.of((rows, rows) for rows in seen if rows is not None)
    knots = (*_KNOTS, pattern.sparsity)
    made = prune_layer(weights, flat, moments, pattern)
    at = errors(weights, flat, moments, [replace(pattern, sparsity=s) for s in knots])
    if made is None or at is None or at[-1] <= 0:
        return _Curve(np.zeros(len(grid)), weights.size)
    new = {node.inputs[1] or "": made.weights.reshape(tensor.shape).astype(np.float32)}
    if made.bias is not None and name is not None and bias is not None:
        new[name] = made.bias.reshape(bias.shape).astype(np.float32)
    noise = float(np.mean([_relative_noise(graph, index, each, new) for each in values[:_RUN]]))
    tiny = at[-1] * 1e-12
    curve = np.interp(grid, (0.0, *_KNOTS), np.log(np.maximum([at[0] / 50, *at[:-1]], tiny)))
    found = np.exp(curve - math.log(at[-1])) * noise
    found[0] = 0.0
    return _Curve(found, weights.size)


def _relative_noise(
    graph: Graph, index: int, exact: Mapping[str, Array], new: Mapping[str, Array]
) -> float:
    """Relative noise power of the outputs when `new` replaces constants of one node."""
    node: Node = graph.nodes[index]
    values = {**exact, **new}
    values.update(zip(node.outputs, run_node(node, graph.tensors, values), strict=True))
    rerun(graph, index, values)
    before, after = ({n: v[n] for n in graph.outputs} for v in (exact, values))
    outputs: tuple[list[Outputs], list[Outputs]] = ([before], [after])
    found = compared(graph, *outputs)
    return float(np.mean([10 ** (-d.snr_db / 10) for d in found.values()]))


def _choose_sparsities(
    curves: Mapping[str, _Curve], grid: F64, useful: Array, wanted: float
) -> dict[str, float]:
    """Choose sparsities from `grid` with minimal total noise and weighted mean `wanted`."""
    total = sum(c.weights for c in curves.values())
    weights = np.array([c.weights / total for c in curves.values()])
    noise = np.stack([c.noise[useful] for c in curves.values()])

    def at(rate: float) -> F64:
        cost = noise - rate * weights[:, None] * grid
        found: F64 = grid[cost.argmin(axis=1)]
        return found

    low, high = 1e-15, 1e15
    for _ in range(100):
        middle = math.sqrt(low * high)
        if float(at(middle) @ weights) < wanted:
            low = middle
        else:
            high = middle
    fewer, more = at(low), at(high)
    if float(fewer @ weights) > wanted:  # layers without noise would exceed the wanted share
        fewer = np.zeros(len(weights))
    least, most = float(fewer @ weights), float(more @ weights)
    part = (wanted - least) / (most - least) if most > least else 1.0
    shares = fewer + min(max(part, 0.0), 1.0) * (more - fewer)
    return dict(zip(curves, map(float, shares), strict=True))
