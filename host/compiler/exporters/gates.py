"""Which fully connected layers make the gates of recurrent layers: ONNX has both as one."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Graph, Node


@dataclass(frozen=True)
class Gates:
    """What makes a recurrent layer's gates: the fully connected layer, what moves its rows from
    there to the layer, in that order, and all nodes that are of no more use beside the layer."""

    product: Node
    moves: tuple[Node, ...]
    inside: tuple[str, ...]


def gates_of(graph: Graph) -> dict[str, Gates]:
    """By the names of recurrent layers; those whose gates come from elsewhere have none."""
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
    """Whether a node leaves each row as it is: what was made of a row before is the same after."""
    x, y = graph.tensors[node.inputs[0] or ""], graph.tensors[node.outputs[0]]
    if isinstance(node.op, ops.Transpose):
        return node.op.permutation[-1] == len(x.shape) - 1
    return isinstance(node.op, ops.Reshape) and x.shape[-1:] == y.shape[-1:]


def _is_plain(graph: Graph, node: Node) -> bool:
    """Whether a layer is a product of rows with constants."""
    op = node.op
    assert isinstance(op, ops.FullyConnected)
    constant = all(name is None or graph.tensors[name].data is not None for name in node.inputs[1:])
    plain = op.activation is Activation.NONE and op.epilogue is None and len(node.inputs) < 4
    return plain and constant
