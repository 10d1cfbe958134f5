"""Chooses the layers to prune and gives the reason for each layer that stays dense."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node, Operator, Shape
from edgekit.host.compiler.transforms.prune.pattern import Pattern
from edgekit.host.compiler.transforms.quantize.rounding import DEEPEST
from edgekit.host.compiler.transforms.quantize.rules import has_weights
from edgekit.host.errors import InputError


def layers_of(graph: Graph, pattern: Pattern, every: bool) -> dict[str, str]:
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


def can_be_fitted(graph: Graph, node: Node) -> bool:
    """Whether no other layer shares its weights, and an output has at most DEEPEST inputs."""
    if not isinstance(node.op, ops.Conv2D | ops.FullyConnected | ops.DepthwiseConv2D):
        return False
    if not has_weights(graph, node) or _shares_weights(graph, node):
        return False
    weights = graph.tensors[node.inputs[1] or ""]
    return weights.elements // _outputs_of(node.op, weights.shape) <= DEEPEST


def _outputs_of(op: Operator, weights: Shape) -> int:
    """Return the number of output channels, derived from the shape of the weights."""
    return weights[-1] if isinstance(op, ops.DepthwiseConv2D) else weights[0]


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
