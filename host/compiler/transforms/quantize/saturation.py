"""From where on values make no difference to the functions that read them."""

from __future__ import annotations

from edgekit.host.compiler.ir.types import Graph, Node

Ends = tuple[float, float]


def ends_of_use(graph: Graph) -> dict[str, Ends]:
    """Of tensors that only such functions read, directly or moved: the lowest and highest value
    beyond which results are the same codes."""
    consumers, found = graph.consumers(), dict[str, Ends]()
    for node in reversed(graph.nodes):
        for name in node.outputs:
            each = [_of_reader(reader, found) for reader in consumers[name]]
            known = [ends for ends in each if ends is not None]
            if known and len(known) == len(each) and name not in graph.outputs:
                found[name] = min(low for low, _ in known), max(high for _, high in known)
    return found


def _of_reader(node: Node, found: dict[str, Ends]) -> Ends | None:
    """What is behind an operator that only places values says which of them count."""
    return found.get(node.outputs[0]) if node.op.places_values else node.op.saturation()
