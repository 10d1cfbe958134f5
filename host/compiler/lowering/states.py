"""Updates caches in place if a run writes only a few of their rows, so the others are not copied.

    read state ─► scatter rows at indices ─► write state        reshapes may occur in between

All three then share the state's memory: reading and writing emit no code, and later readers of the
rows access the state directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node


def kept_in_place(graph: Graph) -> dict[str, str]:
    """Maps tensors that can share a state's memory to that state: as read, and after the scatter.

    The state must be read once, only by the scatter, and written once; no view of it may be an
    output.
    """
    found: dict[str, str] = {}
    producer, users = graph.producer(), graph.consumers()
    touched = Counter(
        n.op.state for n in graph.nodes if isinstance(n.op, ops.ReadState | ops.WriteState)
    )
    for node in graph.nodes:
        if not isinstance(node.op, ops.WriteState) or touched[node.op.state] != 2:
            continue
        scatter = _behind_views(producer, node.inputs[0])
        if scatter is None or not isinstance(scatter.op, ops.Scatter):
            continue
        read = _behind_views(producer, scatter.inputs[0])
        if read is None or not isinstance(read.op, ops.ReadState):
            continue
        before, after = (_views(users, n.outputs[0]) for n in (read, scatter))
        readers = [n for name in before for n in users[name] if not isinstance(n.op, ops.Reshape)]
        if read.op.state != node.op.state or readers != [scatter]:
            continue
        if not {*before} & {*scatter.inputs[1:]} and not {*before, *after} & {*graph.outputs}:
            found |= dict.fromkeys((*read.outputs, *scatter.outputs), node.op.state)
    return found


def _behind_views(producer: Mapping[str, Node], name: str | None) -> Node | None:
    """The node that produced the memory that `name` is a view of."""
    node = None if name is None else producer.get(name)
    while node is not None and isinstance(node.op, ops.Reshape):
        node = producer.get(node.inputs[0] or "")
    return node


def _views(users: Mapping[str, Sequence[Node]], name: str) -> list[str]:
    """`name` and all views of its memory."""
    found = [name]
    for each in found:
        found += [n.outputs[0] for n in users[each] if isinstance(n.op, ops.Reshape)]
    return found
