"""Quantization parameters per tensor; tensors linked by data movement share one scale."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node, Quant
from edgekit.host.compiler.transforms.quantize.histogram import Histogram
from edgekit.host.compiler.transforms.quantize.observe import Observed
from edgekit.host.compiler.transforms.quantize.ranges import Method, histogram_quant
from edgekit.host.compiler.transforms.quantize.rules import computed_floats, fixed_quant

_FINER = 2.0  # ratio of scales from which a concatenation's input with other readers keeps its own


class ScaleGroups:
    """Disjoint sets of tensors that share quantization parameters."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the representative of the group that contains `name`."""
        while name in self._above:
            name = self._above[name]
        return name

    def join(self, a: str, b: str) -> None:
        """Merge the groups of `a` and `b`."""
        a, b = self.of(a), self.of(b)
        if a != b:
            self._above[b] = a


def scales_of(
    graph: Graph, quantized: Collection[str], observed: Observed, method: Method
) -> dict[str, Quant]:
    """Return the quantization of every float tensor that a quantized operator reads or writes."""
    nodes = [n for n in graph.nodes if n.name in quantized]
    groups = ScaleGroups()
    for node in nodes:
        if node.op.on_quantized.keeps_scale:
            for made in node.outputs:
                groups.join(node.inputs[0] or "", made)
    fixed = {groups.of(n.outputs[0]): q for n in nodes if (q := fixed_quant(n)) is not None}
    for node in nodes:
        if isinstance(node.op, ops.Concat):
            _join_parts(graph, node, groups, fixed, observed)
    names = dict.fromkeys(
        name for node in nodes for name in computed_floats(graph, (*node.inputs, *node.outputs))
    )
    merged: dict[str, Histogram] = {}
    for name in names:
        root, own = groups.of(name), observed.histograms.get(name, Histogram())
        merged[root] = merged[root].merged(own) if root in merged else own
    given = {groups.of(name) for name in graph.inputs}
    quants = {
        root: fixed.get(root)
        # For graph inputs, data beyond these samples may use the full range.
        or histogram_quant(found, "extremes" if root in given else method)
        for root, found in merged.items()
    }
    return {name: quants[groups.of(name)] for name in names}


def _join_parts(
    graph: Graph, node: Node, groups: ScaleGroups, fixed: Mapping[str, Quant], observed: Observed
) -> None:
    """Give a concatenation's inputs its output's quantization, unless one needs a finer scale:
    rounding twice would be worse than rounding coarsely."""
    consumers, whole = graph.consumers(), node.outputs[0]
    parts = computed_floats(graph, node.inputs)
    if groups.of(whole) in fixed or any(groups.of(part) in fixed for part in parts):
        return
    size = observed.extent(whole)
    for part in parts:
        if len(consumers[part]) == 1 or observed.extent(part) * _FINER >= size:
            groups.join(whole, part)
