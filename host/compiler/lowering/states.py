"""Caches that a run puts a few rows into stay where they are: all other rows are not copied.

    read state ─► rows put where indices say ─► write state        views may stand between

All three are the memory of the state then: reading and writing it become no code, and what needs
the rows afterwards reads them there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node


def kept_in_place(graph: Graph) -> dict[str, str]:
    """The state of each tensor that is its memory: as it is read, and with rows put into it.

    A state counts that is read once, for these rows alone, and written once, and no view of which
    is an output.
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
    """What made the memory that `name` is a view of."""
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
