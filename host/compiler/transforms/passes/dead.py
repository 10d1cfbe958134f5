"""Removes unused nodes and tensors."""

from __future__ import annotations

from dataclasses import replace

from edgekit.host.compiler.ir.ops import ReadState, WriteState
from edgekit.host.compiler.ir.types import Graph, Node


def dead(graph: Graph) -> Graph:
    """Keep only the nodes that outputs and states depend on, and all graph inputs."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if isinstance(node.op, WriteState) or needed.intersection(node.outputs):
            kept.append(node)
            needed.update(name for name in node.inputs if name is not None)
    kept.reverse()
    # Kept nodes may have unread outputs, which still need a tensor.
    needed.update(name for node in kept for name in node.outputs)
    needed.update(graph.inputs)
    used = {node.op.state for node in kept if isinstance(node.op, ReadState | WriteState)}
    return replace(
        graph,
        nodes=tuple(kept),
        tensors={name: t for name, t in graph.tensors.items() if name in needed},
        states={name: s for name, s in graph.states.items() if name in used},
    )
