"""Pruning: layer by layer from the inputs on, each seeing what the pruned ones before it make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgekit.host.errors import InputError
from edgekit.host.exporters.halves import as_halves
from edgekit.host.graph.evaluate import last_uses, run_node
from edgekit.host.graph.types import Array, Graph, Node, Tensor
from edgekit.host.prune.choose import layers_of
from edgekit.host.prune.layer import Moments, prune_layer
from edgekit.host.prune.pattern import F64, Pattern
from edgekit.host.prune.report import Report, report_of
from edgekit.host.quantize.observe import Sample
from edgekit.host.quantize.prepare import float_form
from edgekit.host.quantize.rounding import seen_rows
from edgekit.host.quantize.samples import is_held_out, spread_for_memory

_SEEN = 64  # samples, at most, that weights are fitted to
_UNSURE = "samples say too little of its inputs"


@dataclass(frozen=True, eq=False)
class Pruned:
    """A graph with zeros among its weights, and what that cost."""

    graph: Graph
    report: Report


def prune(
    graph: Graph,
    samples: Sequence[Sample],
    pattern: Pattern,
    labels: NDArray[np.int64] | None = None,
    every: bool = False,
) -> Pruned:
    """`graph` of floats with the zeros of `pattern` in each layer that can run sparse; with `every`
    in convolutions of other windows and strides, too. Every fourth sample is held out, and what is
    reported was measured on those. `labels`: the class of each sample, for the report.

    Raises InputError for a graph that is quantized, has states or nothing to prune.
    """
    plain = float_form(graph, "prune")
    if plain.states:
        raise InputError(
            f"{graph.name}: expected a model without states, found {len(plain.states)}; their "
            "layers cannot be fitted sample by sample"
        )
    dense = layers_of(plain, pattern, every)
    fit = [s for i, s in enumerate(samples) if not is_held_out(i)]
    held = [i for i in range(len(samples)) if is_held_out(i)]
    unseen, truth = [samples[i] for i in held], None if labels is None else labels[np.array(held)]
    fit = [*spread_for_memory(plain, fit, _SEEN)]
    made = _Walk(plain, fit, pattern, dense).run()
    return Pruned(made, report_of(plain, made, dense, unseen, truth, len(fit)))


class _Walk:
    """Both models side by side, node after node over all samples."""

    def __init__(
        self, graph: Graph, samples: Sequence[Sample], pattern: Pattern, dense: dict[str, str]
    ) -> None:
        self._graph, self._pattern, self._dense = graph, pattern, dense
        constants = {n: t.data for n, t in graph.tensors.items() if t.data is not None}
        self._exact: list[dict[str, Array]] = [{**constants, **each} for each in samples]
        self._ours: list[dict[str, Array]] = [{**constants, **each} for each in samples]
        self._tensors: dict[str, Tensor] = dict(graph.tensors)

    def run(self) -> Graph:
        ends = last_uses(self._graph)
        for index, node in enumerate(self._graph.nodes):
            if self._dense.get(node.name) == "":
                self._prune(node)
            for values in (*self._exact, *self._ours):
                made = run_node(node, self._graph.tensors, values)
                values.update(zip(node.outputs, made, strict=True))
                for name in ends.get(index, ()):
                    del values[name]
        return replace(self._graph, tensors=self._tensors)

    def _prune(self, node: Node) -> None:
        x, name = node.inputs[0] or "", node.inputs[1] or ""
        tensor = self._tensors[name]
        assert tensor.data is not None
        weights = tensor.data.reshape(tensor.shape[0], -1)
        moments = Moments.none(weights.shape[1])
        for exact, pruned in zip(self._exact, self._ours, strict=True):
            rows = [seen_rows(node, tensor.shape, values[x]) for values in (pruned, exact)]
            assert rows[0] is not None and rows[1] is not None
            moments.add(rows[0], rows[1])
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        before = None if bias is None else self._exact[0][bias].reshape(-1)
        found = prune_layer(weights, before, moments, self._pattern)
        if found is None:
            self._dense[node.name] = _UNSURE
            return
        self._set(name, found.weights)
        if bias is not None and found.bias is not None:
            self._set(bias, found.bias)

    def _set(self, name: str, values: F64) -> None:
        """Puts new values in a constant, of half precision where it had been so."""
        old = self._tensors[name]
        assert old.data is not None
        new = values.reshape(old.shape).astype(np.float32)
        if as_halves(old.data) is not None:
            ends = float(np.finfo(np.float16).max)
            new = np.clip(new, -ends, ends).astype(np.float16).astype(np.float32)
        # A value's place in a file takes up to as much as the value, if that is of 16 bits.
        sparse = 2 * int(np.count_nonzero(new)) < new.size
        self._tensors[name] = replace(old, data=new, sparse=sparse)
        for ours in self._ours:
            ours[name] = new
