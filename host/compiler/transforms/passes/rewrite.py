"""Pattern rewriting: replaces a few neighboring nodes at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.ops import Add, Mul
from edgekit.host.compiler.ir.types import Activation, Array, DType, Graph, Node, Tensor


class Users:
    """The readers and the producer of each tensor in a graph; `made` collects the constants that a
    match adds."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer = graph.producer()
        self.made: dict[str, Tensor] = {}
        self._names = set(graph.tensors)
        self._consumers = graph.consumers()

    def constant(self, stem: str, like: Tensor, data: Array) -> str:
        """Add a constant to the graph; returns its name."""
        name = fresh_name(stem, self._names)
        self.made[name] = Tensor(name, data.shape, like.dtype, None, data, like.sparse)
        return name

    def only_consumer(self, tensor: str) -> Node | None:
        """Return the only reader of a tensor that is no graph output."""
        users = self._consumers[tensor]
        if len(users) != 1 or tensor in self.graph.outputs:
            return None
        return users[0]

    def single(self, tensor: str | None) -> Node | None:
        """Return the producer of `tensor` if it has only one reader."""
        if tensor is None or self.only_consumer(tensor) is None:
            return None
        return self.producer.get(tensor)

    def only_for(self, tensor: str, nodes: Iterable[Node]) -> bool:
        """Whether nothing else reads `tensor`."""
        readers = {n.name for n in self._consumers[tensor]}
        return readers <= {n.name for n in nodes} and tensor not in self.graph.outputs

    def is_read(self, tensor: str) -> bool:
        """Whether a node or the graph's caller reads `tensor`."""
        return bool(self._consumers[tensor]) or tensor in self.graph.outputs

    def scalar(self, tensor: str | None) -> float | None:
        """Return the value of an f32 constant with one element."""
        found = self.graph.tensors[tensor] if tensor is not None else None
        if found is None or found.data is None or found.elements != 1 or found.dtype != DType.F32:
            return None
        return float(found.data.reshape(-1)[0])

    def is_plain(self, node: Node, kind: type[Add] | type[Mul]) -> bool:
        """Whether the node is an f32 `kind` without a fused activation."""
        op = node.op
        return (
            isinstance(op, Add | Mul)
            and isinstance(op, kind)
            and op.activation is Activation.NONE
            and self.graph.tensors[node.outputs[0]].dtype is DType.F32
        )


Match = Callable[[Users, Node], dict[str, Node | None] | None]


def rewrite(graph: Graph, match: Match) -> Graph:
    """Apply `match` to each node of the original graph once.

    It returns replacements by node name (None removes a node), or None for no match. A node that
    was already replaced is not matched again in this round.
    """
    users = Users(graph)
    changed: dict[str, Node | None] = {}
    for node in graph.nodes:
        if node.name in changed:
            continue
        found = match(users, node)
        if found is not None and not found.keys() & changed.keys():
            changed |= found
    if not changed:
        return graph
    nodes = (changed.get(n.name, n) for n in graph.nodes)
    kept = tuple(n for n in nodes if n is not None)
    used = {t for n in kept for t in (*n.inputs, *n.outputs) if t is not None}
    used |= {*graph.inputs, *graph.outputs}
    tensors = {n: t for n, t in (*graph.tensors.items(), *users.made.items()) if n in used}
    return dataclasses.replace(graph, nodes=kept, tensors=tensors)


def until_stable(graph: Graph, match: Match) -> Graph:
    while True:
        after = rewrite(graph, match)
        if after is graph:
            return graph
        graph = after
