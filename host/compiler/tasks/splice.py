"""Puts the operators of a model behind those of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.tasks.append import Appender


def spliced(graph: Graph, part: Graph, prefix: str, given: str) -> tuple[Graph, tuple[str, ...]]:
    """The graph with those operators behind it that compute the outputs of `part`, whose input is
    `given`, and the names of these outputs."""
    (own,) = part.inputs
    shape = part.tensors[own].shape
    to = Appender(graph, f"{prefix}/input")
    given = to.add(ops.Reshape(shape), given)
    graph = to.graph
    names = {name: f"{prefix}/{name}" for name in part.tensors} | {own: given}
    states = {name: f"{prefix}/{name}" for name in part.states}
    tensors = {names[n]: replace(t, name=names[n]) for n, t in part.tensors.items() if n != own}
    nodes = tuple(_renamed(node, prefix, names, states) for node in part.nodes)
    kept = {states[n]: replace(state, name=states[n]) for n, state in part.states.items()}
    made = replace(
        graph,
        tensors={**graph.tensors, **tensors},
        nodes=(*graph.nodes, *nodes),
        states={**graph.states, **kept},
    )
    return made, tuple(names[output] for output in part.outputs)


def _renamed(node: Node, prefix: str, names: Mapping[str, str], states: Mapping[str, str]) -> Node:
    op = node.op
    if isinstance(op, ops.ReadState | ops.WriteState):
        op = replace(op, state=states[op.state])
    return Node(
        f"{prefix}/{node.name}",
        op,
        tuple(names[name] if name is not None else None for name in node.inputs),
        tuple(names[name] for name in node.outputs),
    )
