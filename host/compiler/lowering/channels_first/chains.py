"""Finds the chains a graph would have if all images were channels-last.

A chain's savings are lost if one of its convolutions runs on channels-first images.
"""

from __future__ import annotations

from edgekit.host.compiler.costs.layout_table import CHAIN, LayoutTable
from edgekit.host.compiler.costs.layouts import Saved, saved_by_chain
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.channels_first.forms import is_sparse
from edgekit.host.compiler.lowering.conv.chains import chain_for_time
from edgekit.host.compiler.lowering.groups import MethodGroups
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.kb.targets.board import BoardProfile


def channels_last_chains(
    graph: Graph,
    board: BoardProfile,
    table: LayoutTable | None,
    rows: KnowledgeBase,
    threads: int = 1,
) -> tuple[Saved, ...]:
    """Returns the savings of each chain that compile would build in a channels-last `graph`.

    Empty if nothing is pruned or the table has no cost for chains. For chains of three operators,
    only the savings of the last two are counted. Chains that `graph` has already stay anyway.
    """
    if table is None or not table.knows(CHAIN):
        return ()
    if not any(is_sparse(graph, node, table) for node in graph.nodes):
        return ()
    nodes = {node.name: node for node in graph.nodes}
    chained = chain_for_time(graph, board, rows, MethodGroups(board, rows, threads))
    pairs = [
        (nodes[node.op.names[-2]], nodes[node.op.names[-1]])
        for node in chained.nodes
        if type(node.op) is ops.RowChain
        and type(node.op.members[-1]) is ops.Conv2D
        and node.op.names[-2] in nodes
    ]
    every = [saved_by_chain(graph, pair, table, board.isa.vl) for pair in pairs]
    return tuple(saved for saved in every if saved.cost > 0)
