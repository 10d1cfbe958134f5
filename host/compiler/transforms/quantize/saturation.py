"""Input ranges beyond which an activation is saturated."""

from __future__ import annotations

from edgekit.host.compiler.ir.types import Graph, Node

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
