"""Finds the fully connected layers that feed recurrent layers; ONNX fuses the two."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Graph, Node


@dataclass(frozen=True)
class Gates:
    """The producer of a recurrent layer's gates: the fully connected layer, the nodes that move its
    rows to the recurrent layer, in graph order, and all nodes the fused operator replaces."""

    product: Node
    moves: tuple[Node, ...]
    inside: tuple[str, ...]


def gates_of(graph: Graph) -> dict[str, Gates]:
    """Gates by recurrent layer name; layers with any other gate producer are omitted."""
    producer, consumers = graph.producer(), graph.consumers()
    found = {}
    for node in graph.nodes:
        if not isinstance(node.op, ops.Recurrent):
            continue
        inside: list[str] = []
        moves: list[Node] = []
        name, reader = node.inputs[0] or "", node
        while (made := producer.get(name)) is not None:
            if [n.name for n in consumers[name]] != [reader.name] or name in graph.outputs:
                break
            inside.append(made.name)
            if isinstance(made.op, ops.FullyConnected) and _is_plain(graph, made):
                found[node.name] = Gates(made, tuple(reversed(moves)), tuple(inside))
            if _moves_rows(graph, made):
                moves.append(made)
            elif not isinstance(made.op, ops.Cast):
                break
            name, reader = made.inputs[0] or "", made
    return found


def _moves_rows(graph: Graph, node: Node) -> bool:
    """Whether a node keeps each row intact, so that it commutes with row-wise operators."""
    x, y = graph.tensors[node.inputs[0] or ""], graph.tensors[node.outputs[0]]
    if isinstance(node.op, ops.Transpose):
        return node.op.permutation[-1] == len(x.shape) - 1
    return isinstance(node.op, ops.Reshape) and x.shape[-1:] == y.shape[-1:]


def _is_plain(graph: Graph, node: Node) -> bool:
    """Whether the layer is a plain product with constant weights and bias."""
    op = node.op
    assert isinstance(op, ops.FullyConnected)
    constant = all(name is None or graph.tensors[name].data is not None for name in node.inputs[1:])
    plain = op.activation is Activation.NONE and op.epilogue is None and len(node.inputs) < 4
    return plain and constant
