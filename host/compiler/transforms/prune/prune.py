"""Chooses the layers to prune, and prunes one by one from the inputs on, each layer fitted to the
outputs of the pruned ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.exporters.halves import as_halves
from edgekit.host.compiler.inputs import InputOptions
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import last_uses, run_node
from edgekit.host.compiler.ir.types import Array, Graph, Node, Tensor
from edgekit.host.compiler.transforms.prune.allot import shares_of
from edgekit.host.compiler.transforms.prune.layer import Moments, prune_layer, refit_layer
from edgekit.host.compiler.transforms.prune.pattern import F64, Pattern
from edgekit.host.compiler.transforms.prune.report import PruneReport, report_of
from edgekit.host.compiler.transforms.quantize.labels import read_labels
from edgekit.host.compiler.transforms.quantize.observe import Sample
from edgekit.host.compiler.transforms.quantize.prepare import float_form
from edgekit.host.compiler.transforms.quantize.rounding import DEEPEST, seen_rows, seen_taps
from edgekit.host.compiler.transforms.quantize.rules import has_weights
from edgekit.host.compiler.transforms.quantize.samples import (
    is_held_out,
    samples_of,
    spread_for_memory,
)
from edgekit.host.errors import InputError

_SEEN = 64  # maximum number of samples that weights are fitted to
_KEPT = "changes the outputs too much"
_UNSURE = "samples cover too few of its inputs"

_FEWER = (0.7, 0.6, 0.5)  # zeros, where more break a model


@dataclass(frozen=True, eq=False)
class Pruned:
    """A pruned graph and a report of its loss."""

    graph: Graph
    report: PruneReport


def prune(
    graph: Graph,
    samples: Sequence[Sample],
    pattern: Pattern,
    labels: NDArray[np.int64] | None = None,
    every: bool = False,
) -> Pruned:
    """Prune every layer of the float `graph` that has a sparse kernel. Convolutions
    other than 1x1 with stride 1 are pruned only with `every`.

    Every fourth sample is held out, and the report is measured on those. `labels`: the class of
    each sample, for the report. Raises InputError for a graph that is quantized, has states or has
    nothing to prune.
    """
    plain = float_form(graph, "prune")
    if plain.states:
        raise InputError(
            f"{graph.name}: expected a model without states, found {len(plain.states)}; their "
            "layers cannot be fitted sample by sample"
        )
    dense = _layers_of(plain, pattern, every)
    fit = [s for i, s in enumerate(samples) if not is_held_out(i)]
    held = [i for i in range(len(samples)) if is_held_out(i)]
    unseen, truth = [samples[i] for i in held], None if labels is None else labels[np.array(held)]
    fit = [*spread_for_memory(plain, fit, _SEEN)]
    names = [name for name, why in dense.items() if not why]
    shares = shares_of(plain, fit, pattern, names)
    dense |= {name: _KEPT for name, share in shares.items() if share == 0}
    patterns = {name: replace(pattern, sparsity=share) for name, share in shares.items() if share}
    made = _Walk(plain, fit, patterns, dense).run()
    return Pruned(made, report_of(plain, made, dense, unseen, truth, len(fit)))


class _Walk:
    """Runs the float and the pruned model in lockstep, node by node over all samples."""

    def __init__(
        self,
        graph: Graph,
        samples: Sequence[Sample],
        patterns: Mapping[str, Pattern],
        dense: dict[str, str],
    ) -> None:
        self._graph, self._patterns, self._dense = graph, patterns, dense
        constants = {n: t.data for n, t in graph.tensors.items() if t.data is not None}
        self._exact: list[dict[str, Array]] = [{**constants, **each} for each in samples]
        self._ours: list[dict[str, Array]] = [{**constants, **each} for each in samples]
        self._tensors: dict[str, Tensor] = dict(graph.tensors)

    def run(self) -> Graph:
        ends = last_uses(self._graph)
        for index, node in enumerate(self._graph.nodes):
            if self._takes_fit(node):
                self._fit_node(node)
            for values in (*self._exact, *self._ours):
                made = run_node(node, self._graph.tensors, values)
                values.update(zip(node.outputs, made, strict=True))
                for name in ends.get(index, ()):
                    del values[name]
        return replace(self._graph, tensors=self._tensors)

    def _takes_fit(self, node: Node) -> bool:
        """Whether the node is pruned, or is dense with inputs changed by pruned layers."""
        if node.name not in self._dense or not _can_be_fitted(self._graph, node):
            return False
        x, both = node.inputs[0] or "", zip(self._exact, self._ours, strict=True)
        return node.name in self._patterns or any(
            not np.array_equal(exact[x], ours[x]) for exact, ours in both
        )

    def _fit_node(self, node: Node) -> None:
        name = node.inputs[1] or ""
        tensor = self._tensors[name]
        assert tensor.data is not None
        weights = _as_rows(node, tensor.data)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        before = None if bias is None else self._exact[0][bias].reshape(weights.shape[:-1])
        both = zip(self._ours, self._exact, strict=True)
        moments = Moments.of(
            (_sampled_inputs(node, tensor, a), _sampled_inputs(node, tensor, b)) for a, b in both
        )
        pattern = self._patterns.get(node.name)
        if pattern is None:
            found = refit_layer(weights, before, moments)
        else:
            found = prune_layer(weights, before, moments, pattern)
        if found is None:
            self._dense[node.name] = self._dense[node.name] or _UNSURE
            return
        depthwise = isinstance(node.op, ops.DepthwiseConv2D)
        self._replace_constant(name, found.weights[:, 0].T if depthwise else found.weights)
        if bias is not None and found.bias is not None:
            self._replace_constant(bias, found.bias)

    def _replace_constant(self, name: str, values: F64) -> None:
        """Replace a constant, keeping half precision if the old values had it."""
        old = self._tensors[name]
        assert old.data is not None
        new = values.reshape(old.shape).astype(np.float32)
        if as_halves(old.data) is not None:
            ends = float(np.finfo(np.float16).max)
            new = np.clip(new, -ends, ends).astype(np.float16).astype(np.float32)
        # A sparse file stores an index per value, which may be as large as a 16-bit value.
        sparse = 2 * int(np.count_nonzero(new)) < new.size
        self._tensors[name] = replace(old, data=new, sparse=sparse)
        for ours in self._ours:
            ours[name] = new


def _as_rows(node: Node, weights: Array) -> Array:
    """Reshape to [n, k]; for a depthwise convolution to [c, 1, taps], with separate inputs."""
    if isinstance(node.op, ops.DepthwiseConv2D):
        return weights.reshape(-1, weights.shape[-1]).T[:, None]
    return weights.reshape(weights.shape[0], -1)


def _sampled_inputs(node: Node, weights: Tensor, values: Mapping[str, Array]) -> Array:
    """Inputs of a subset of outputs in one sample: [some, k], or [c, some, taps] if depthwise."""
    x = values[node.inputs[0] or ""]
    if isinstance(node.op, ops.DepthwiseConv2D):
        return seen_taps(node.op, weights.shape, x)
    rows = seen_rows(node, weights.shape, x)
    assert rows is not None
    return rows


def pruned_file(
    model: Path,
    graph: Graph,
    data: Path,
    pattern: Pattern,
    labels: Path | None = None,
    every: bool = False,
    options: InputOptions | None = None,
    careful: bool = False,
) -> Pruned:
    """`prune` the graph imported from `model` with the samples in `data`. `options` override the
    pixel scaling recorded in the model. The loss is added to the graph as a note. `careful`: fewer
    zeros where those of the pattern would break the model, as the report's `broken_at` says.

    Raises InputError for unsuitable models or samples.
    """
    _layers_of(float_form(graph, "prune"), pattern, every)  # fail early: reading samples is slow
    samples = samples_of(model, graph, data, options)
    truth = None if labels is None else read_labels(labels, graph, len(samples))
    made = prune(graph, samples, pattern, truth, every)
    for share in _FEWER if careful and made.report.broken else ():
        made = prune(graph, samples, replace(pattern, sparsity=share), truth, every)
        if not made.report.broken:
            made = replace(made, report=replace(made.report, broken_at=pattern.sparsity))
            break
    report = made.report
    note = (
        f"pruned: {report.sparsity:.0%} of the weights of {len(report.pruned)} layers; cosine "
        f"{report.cosine:.5f} with the original model on {report.unseen} samples held out"
    )
    return replace(made, graph=replace(made.graph, notes=(*made.graph.notes, note)))


def _layers_of(graph: Graph, pattern: Pattern, every: bool) -> dict[str, str]:
    """Map each weighted layer to "" if it is pruned, or to the reason why it stays dense.

    Without `every`, only the layers that gain most are pruned: 1x1 convolutions of stride 1 and
    fully connected layers. Raises InputError if no layer qualifies.
    """
    found = {
        n.name: _skip_reason(graph, n, pattern, every)
        for n in graph.nodes
        if isinstance(n.op, ops.Weighted)
    }
    if "" not in found.values():
        reasons = ", ".join(dict.fromkeys(found.values()))
        raise InputError(
            f"{graph.name}: expected layers to prune, found none among {len(found)}: {reasons}"
        )
    return found


def _can_be_fitted(graph: Graph, node: Node) -> bool:
    """Whether no other layer shares its weights, and an output has at most DEEPEST inputs."""
    if not isinstance(node.op, ops.Conv2D | ops.FullyConnected | ops.DepthwiseConv2D):
        return False
    if not has_weights(graph, node) or _shares_weights(graph, node):
        return False
    weights = graph.tensors[node.inputs[1] or ""]
    return node.op.terms([None, weights]) <= DEEPEST


def _shares_weights(graph: Graph, node: Node) -> bool:
    return any(len(graph.consumers()[name]) > 1 for name in node.inputs[1:] if name)


def _skip_reason(graph: Graph, node: Node, pattern: Pattern, every: bool) -> str:
    if not isinstance(node.op, ops.Conv2D | ops.FullyConnected):
        return "no sparse kernel for its kind"
    if not has_weights(graph, node):
        return "weights are computed"
    weights = graph.tensors[node.inputs[1] or ""]
    if _shares_weights(graph, node):
        return "shares weights"
    if isinstance(node.op, ops.Conv2D) and not every:
        height, width = weights.shape[1:3]
        if (height, width) != (1, 1) or node.op.stride != (1, 1):
            kind = "strided" if (height, width) == (1, 1) else f"{height}x{width}"
            return f"{kind}: sparse saves less there (--all-layers)"
    inputs = weights.elements // weights.shape[0]
    if inputs > DEEPEST:
        return f"{inputs} inputs, more than {DEEPEST}"
    return "" if pattern.fits(inputs) else f"{inputs} inputs do not divide by {pattern.of}"
