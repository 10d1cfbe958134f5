"""Converts between chain operators and the operators they consist of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from edgekit.host.compiler.ir.ops import RowChain
from edgekit.host.compiler.ir.types import Graph, Node


def members_of(graph: Graph, node: Node) -> tuple[Graph, tuple[Node, ...]]:
    """Expand a chain: returns the graph with its intermediate images, and the member nodes."""
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


def with_chains(
    graph: Graph, chain: Mapping[str, tuple[Node, ...]], kind: type[RowChain] = RowChain
) -> Graph:
    """Replace each chain's last member by a chain operator; `chain` maps each member's name to the
    chain's members."""
    nodes, gone = [], set()
    for node in graph.nodes:
        members = chain.get(node.name)
        if members is None:
            nodes.append(node)
        elif node is members[-1]:
            nodes.append(_as_one(graph, members, kind))
        else:
            gone |= set(node.outputs)
    tensors = {n: t for n, t in graph.tensors.items() if n not in gone}
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors=tensors)


def _as_one(graph: Graph, members: tuple[Node, ...], kind: type[RowChain]) -> Node:
    inputs: list[str | None] = [members[0].inputs[0]]
    for node in members:
        own = node.inputs[1:5]
        inputs += [*own, *[None] * (4 - len(own))]
    between = tuple(graph.tensors[n.outputs[0]].quant for n in members[:-1])
    op = kind(tuple(n.op for n in members), between, tuple(n.name for n in members))
    return Node(members[-1].name, op, tuple(inputs), members[-1].outputs)
