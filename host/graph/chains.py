"""A chain of convolutions as the operators that it was made of."""

from __future__ import annotations

import dataclasses

from edgekit.host.graph.ops import RowChain
from edgekit.host.graph.types import Graph, Node


def members_of(graph: Graph, node: Node) -> tuple[Graph, tuple[Node, ...]]:
    """The operators that a chain was made of, and the graph with the images between them."""
    op = node.op
    assert isinstance(op, RowChain)
    ins = [None if name is None else graph.tensors[name] for name in node.inputs]
    names = [f"{node.name}:{i}" for i in range(len(op.members))]
    outputs = [*names[:-1], node.outputs[0]]
    between = {
        name: dataclasses.replace(image, name=name)
        for name, image in zip(names[:-1], op.images(ins)[:-1], strict=True)
    }
    nodes, image = [], node.inputs[0]
    for i, (name, out) in enumerate(zip(names, outputs, strict=True)):
        nodes.append(Node(name, op.members[i], (image, *node.inputs[op.operands(i)]), (out,)))
        image = out
    whole = dataclasses.replace(graph, tensors={**graph.tensors, **between})
    return whole, tuple(nodes)
