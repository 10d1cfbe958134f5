"""Assigns operators to a board's NNA where they are cheaper there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgekit.host.compiler.ir.nna import fits_nna
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.kb.targets.board import CPU, BoardProfile

NNA = "nna"
Cost = Callable[[Graph, Node, str], float]  # microseconds of a node on a unit


def assign_units(graph: Graph, board: BoardProfile, cost: Cost) -> Mapping[str, str]:
    """Units by node name, for nodes that do not run on the cores."""
    if board.nna is None:
        return {}
    return {
        node.name: NNA
        for node in graph.nodes
        if fits_nna(graph, node) and cost(graph, node, NNA) < cost(graph, node, CPU)
    }
