"""What computes a tensor that is then only moved or converted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node

_MOVES = (
    ops.Reshape.kind, ops.Transpose.kind, ops.Cast.kind, ops.Convert.kind, ops.Quantize.kind,
    ops.BitCast.kind,
)  # fmt: skip
_PROBABILITIES = (ops.Softmax.kind, ops.Logistic.kind)


def maker_of(producer: Mapping[str, Node], name: str) -> Node | None:
    """The node that computes tensor `name`; `producer` is the graph's."""
    node = producer.get(name)
    while node is not None and node.op.kind in _MOVES:
        node = producer.get(node.inputs[0] or "")
    return node


def probabilities(graph: Graph, names: Iterable[str]) -> set[str]:
    """Those of the tensors that are probabilities: a change of 0.01 is 1% of them, however small
    they are."""
    producer = graph.producer()
    makers = ((name, maker_of(producer, name)) for name in names)
    return {name for name, node in makers if node and node.op.kind in _PROBABILITIES}
